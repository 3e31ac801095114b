/** The pages of the navigation. */
import { t } from "../texts/en";

export interface PageEntry {
  readonly id: string;
  readonly title: string;
  /** The right without which the page has nothing to show. */
  readonly right?: string;
}

export const NAVIGATION: readonly { readonly title: string; readonly pages: readonly PageEntry[] }[] = [
  { title: "", pages: [{ id: "overview", title: t.nav.overview }] },
  {
    title: t.nav.machines,
    pages: [
      { id: "instances", title: t.nav.instances },
      { id: "nodes", title: t.nav.nodes },
      { id: "groups", title: t.nav.groups },
      { id: "networks", title: t.nav.networks },
    ],
  },
  { title: t.nav.work, pages: [{ id: "jobs", title: t.nav.jobs }] },
];
