/** The pages of the navigation. */
import { t } from "../texts/en";

export interface PageEntry {
  readonly id: string;
  readonly title: string;
}

export const NAVIGATION: readonly { readonly title: string; readonly pages: readonly PageEntry[] }[] = [
  { title: "", pages: [{ id: "overview", title: t.nav.overview }, { id: "map", title: t.nav.map }, { id: "whatif", title: t.nav.whatif }] },
  {
    title: t.nav.machines,
    pages: [
      { id: "cluster", title: t.nav.cluster },
      { id: "instances", title: t.nav.instances },
      { id: "nodes", title: t.nav.nodes },
      { id: "groups", title: t.nav.groups },
      { id: "networks", title: t.nav.networks },
      { id: "os", title: t.nav.os },
      { id: "images", title: t.nav.images },
      { id: "storage", title: t.nav.storage },
      { id: "exports", title: t.nav.exports },
    ],
  },
  {
    title: t.nav.work,
    pages: [
      { id: "jobs", title: t.nav.jobs },
      { id: "locks", title: t.nav.locks },
      { id: "filters", title: t.nav.filters },
      { id: "audit", title: t.nav.audit },
      { id: "users", title: t.nav.users },
    ],
  },
];
