/** The message of a failed operation: `["OpPrereqError", ["message", "kind"]]`. */
export function failureOf(result: unknown): string {
  const words = (value: unknown): string[] => (Array.isArray(value) ? value.flatMap(words) : [String(value)]);
  if (!Array.isArray(result)) return String(result ?? "");
  const [, details] = result as [unknown, unknown];
  return words(details)[0] ?? "";
}
