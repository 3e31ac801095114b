import { render } from "preact";
import { useEffect } from "preact/hooks";
import { start } from "./api/sync";
import { mayOpen } from "./core/access";
import { followLinks, href, usePlace } from "./core/route";
import { useStore } from "./core/store";
import { Audit, Users } from "./pages/audit";
import { Backups } from "./pages/backups";
import { Cluster } from "./pages/cluster";
import { Console } from "./pages/console";
import { Create } from "./pages/create";
import { Image, Images } from "./pages/images";
import { Instance } from "./pages/instance";
import { Job } from "./pages/job";
import { Groups, Instances, Jobs, Networks, Nodes } from "./pages/lists";
import { Map_ } from "./pages/map";
import { Filters, Locks, OperatingSystems } from "./pages/plain";
import { Group, Network, Node } from "./pages/node";
import { Overview } from "./pages/overview";
import { NAVIGATION } from "./pages/pages";
import { SignIn } from "./pages/signin";
import { Storage } from "./pages/storage";
import { WhatIf } from "./pages/whatif";
import { t } from "./texts/en";
import { Shell } from "./ui/shell";
import { applyTheme } from "./ui/theme";
import "./style.css";

type Page = (props: { name: string }) => preact.JSX.Element;

/** By the first word of the path: the page of all, and the page of one. */
const PAGES: Readonly<Record<string, { readonly all?: () => preact.JSX.Element; readonly one?: Page }>> = {
  overview: { all: Overview },
  instances: { all: Instances, one: Instance },
  nodes: { all: Nodes, one: Node },
  groups: { all: Groups, one: Group },
  console: { one: Console },
  map: { all: Map_ },
  whatif: { all: WhatIf },
  cluster: { all: Cluster },
  os: { all: OperatingSystems },
  exports: { all: Backups },
  images: { all: Images, one: Image },
  locks: { all: Locks },
  filters: { all: Filters },
  audit: { all: Audit },
  users: { all: Users },
  storage: { all: Storage },
  create: { all: Create },
  networks: { all: Networks, one: Network },
  jobs: { all: Jobs, one: ({ name }) => <Job id={name} /> },
};

function App() {
  const session = useStore((state) => state.session);
  const { path } = usePlace();
  const [page = "overview", name] = path;
  if (session === undefined) return null;
  if (session === null) return <SignIn />;
  const found = PAGES[page];
  const One = found?.one;
  const All = found?.all;
  if (found && !mayOpen(session, page, name !== undefined)) return <Shell><NoAccess /></Shell>;
  return <Shell>{name !== undefined && One ? <One key={page + name} name={name} /> : All && name === undefined ? <All key={page} /> : <NotFound />}</Shell>;
}

/** What a user sees whose role does not have a page, for example after a colleague has sent its address. */
function NoAccess() {
  const session = useStore((state) => state.session);
  useEffect(() => { document.title = t.product; }, []);
  const open = NAVIGATION.flatMap((group) => group.pages).filter((one) => mayOpen(session, one.id, false));
  return (
    <div class="page"><div class="empty"><h1>{t.access.title}</h1><p>{t.access.what}</p>
      <ul class="chips">{open.map((one) => <li key={one.id}><a class="button" href={href(one.id === "overview" ? [] : [one.id])}>{one.title}</a></li>)}</ul></div></div>
  );
}

function NotFound() {
  useEffect(() => { document.title = t.product; }, []);
  return (
    <div class="page"><div class="empty"><h1>{t.error.notFound}</h1><p><a href={href([])}>{t.error.toOverview}</a></p></div></div>
  );
}

applyTheme();
followLinks();
void start();
const root = document.getElementById("app");
if (root) render(<App />, root);
