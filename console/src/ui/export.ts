/** Rows as a file. */
import type { AnyRow } from "../core/state";
import type { Column } from "./table";

/** Return the shown rows and columns: CSV as people see the values, JSON as REST has them. */
export function exported(rows: readonly AnyRow[], columns: readonly Column[], form: "csv" | "json"): string {
  if (form === "json") {
    const names = columns.map((column) => column.field);
    return JSON.stringify(rows.map((row) => Object.fromEntries(names.map((name) => [name, row[name] ?? null]))), null, 1);
  }
  const lines = [columns.map((column) => column.field), ...rows.map((row) => columns.map((column) => column.text(row)))];
  return lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

/** Quote a cell; a leading character that spreadsheets take for a formula gets an apostrophe. */
function csvCell(text: string): string {
  const plain = text === "–" ? "" : text;
  const safe = /^[=+\-@\t\r]/.test(plain) ? `'${plain}` : plain;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export function save(name: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: name.endsWith(".csv") ? "text/csv" : "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
