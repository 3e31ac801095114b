/** The button that opens the editing of an object, whose code is loaded when it is first used. */
import { useEffect, useState } from "preact/hooks";
import type { ComponentType } from "preact";
import { reason } from "../api/client";
import { may } from "../core/access";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import type { Editable } from "./edit";
import { Problem } from "./bits";
import { Loading } from "./listpage";

/** Whether the user may edit objects of a kind, and see their settings. */
export function useMayEdit(kind: Editable): boolean {
  const session = useStore((state) => state.session);
  const [settings, modify] = OPERATIONS[kind];
  return may(session, settings) && may(session, modify);
}

const OPERATIONS: Readonly<Record<Editable, readonly [string, string]>> = {
  instance: ["get_instances_name_settings", "put_instances_name_modify"], node: ["get_nodes_name_settings", "post_nodes_name_modify"],
  group: ["get_groups_name_settings", "put_groups_name_modify"], network: ["get_networks_name_settings", "put_networks_name_modify"],
  cluster: ["get_settings", "put_cluster_modify"],
};

type Props = Parameters<typeof import("./edit").Edit>[0];

export function LazyEdit(props: Props) {
  const [found, setFound] = useState<{ Edit: ComponentType<Props> } | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    import("./edit").then(setFound, (error: unknown) => setProblem(reason(error)));
  }, []);
  if (problem) return <Problem text={problem} />;
  return found ? <found.Edit {...props} /> : <Loading />;
}

/** The state of the editing on a page: the button for its head, and the form below. */
export function useEdit(kind: Editable, name: string, version: unknown, isRunning = false) {
  const mayEdit = useMayEdit(kind);
  const [isOpen, setOpen] = useState(false);
  return {
    button: mayEdit && !isOpen ? <button onClick={() => setOpen(true)}>{t.edit.open}</button> : null,
    form: isOpen ? <LazyEdit kind={kind} name={name} version={version} isRunning={isRunning} onClose={() => setOpen(false)} /> : null,
  };
}
