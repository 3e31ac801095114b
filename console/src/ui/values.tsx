/** Any value of the REST interface, as nested names and values. */
import { textOf } from "./columns";

const INLINE = 80;

export function Values({ value }: { value: unknown }) {
  if (value === null || typeof value !== "object") return <span>{textOf(value, undefined)}</span>;
  if (JSON.stringify(value).length < INLINE && Array.isArray(value)) return <code>{JSON.stringify(value)}</code>;
  const entries = Array.isArray(value) ? value.map((one, index) => [String(index), one] as const) : Object.entries(value);
  if (entries.length === 0) return <span class="faint">–</span>;
  return (
    <dl class="values">
      {entries.map(([name, one]) => (
        <div key={name}><dt>{name}</dt><dd><Values value={one} /></dd></div>
      ))}
    </dl>
  );
}
