// Builds one script and one style sheet, and records the digest of their source.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { defineConfig } from "vite";

const here = import.meta.dirname;
const out = join(here, "..", "built");
// Copied unchanged, under stable names, for the pages of an application.
const AS_THEY_ARE = ["icon.svg", "icon-bad.svg", "src/frame.js", "src/session.js", "src/states.js"];

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.name !== "node_modules")
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? sources(path) : [path];
    });
}

// tests/web/test_dashboard_files.py computes the same digest.
function digest() {
  const names = sources(here).map((path) => relative(here, path).split("\\").join("/"));
  const lines = names.sort().map((name) => {
    const hash = createHash("sha256").update(readFileSync(join(here, name))).digest("hex");
    return `${hash}  ${name}\n`;
  });
  return createHash("sha256").update(lines.join("")).digest("hex");
}

// The folders below node_modules from which a module was bundled.
function packages(bundle) {
  const modules = Object.values(bundle).flatMap((chunk) => Object.keys(chunk.modules ?? {}));
  const names = modules.map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

// The licences of what is bundled; a package without one fails the build.
function notices(bundle) {
  const parts = packages(bundle).map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const title = `${name} ${version} (${license})`;
    return `${title}\n${"-".repeat(title.length)}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
  });
  return `The dashboard of Chargehand contains the following packages.\n\n${parts.join("\n\n")}`;
}

const pages = {
  name: "pages",
  writeBundle(_, bundle) {
    writeFileSync(join(out, "THIRD-PARTY-NOTICES.txt"), notices(bundle));
    const script = Object.keys(bundle).find((name) => name.endsWith(".js"));
    const page = readFileSync(join(here, "page.html"), "utf8").replace("SCRIPT", script);
    writeFileSync(join(out, "index.html"), page);
    for (const name of AS_THEY_ARE) writeFileSync(join(out, basename(name)), readFileSync(join(here, name)));
    writeFileSync(join(out, "source.sha256"), digest() + "\n");
  },
};

export default defineConfig({
  root: here,
  base: "./",
  plugins: [pages],
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: {
      input: join(here, "src", "main.tsx"),
      output: {
        entryFileNames: "app-[hash:8].js",
        assetFileNames: (asset) => (asset.names.some((name) => name.endsWith(".css")) ? "chargehand.css" : "[name]-[hash:8][extname]"),
        codeSplitting: false,
      },
    },
  },
});
