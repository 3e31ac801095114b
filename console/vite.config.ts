import { defineConfig } from "vitest/config";

// Served below /ui/ by ganeti-rapi; the result is package data of the Python package.
export default defineConfig({
  base: "/ui/",
  build: {
    outDir: "../src/ganeti/web/ui",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    chunkSizeWarningLimit: 700,
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: { environment: "node", include: ["test/**/*.test.ts"] },
});
