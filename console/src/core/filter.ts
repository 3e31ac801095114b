/** The filter language of `gnt-* list -F`, in the browser: text to a filter, a filter to a test of rows.
 *
 * The grammar and the meaning are those of `ganeti.protocols.query_language` and `ganeti.query.filter`.
 * A single word without an operator that is not a field's name searches names.
 */
import type { AnyRow } from "./state";

export type Filter = readonly [string, ...unknown[]];
export type Test = (row: AnyRow) => boolean;

export class FilterError extends Error {}

interface Token {
  readonly kind: "operator" | "text" | "pattern" | "word";
  readonly text: string;
  readonly at: number;
}

const SYNTAX =
  /\s*(?:(?<operator>==|!=|<=|>=|=~|!~|=\*|!\*|=|<|>|\(|\))|(?<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?<pattern>m\/(?:[^/\\]|\\.)*\/i?)|(?<word>[^\s()=<>!"']+))/y;
const NUMBER = /^-?[0-9]{1,18}(?:\.[0-9]{1,18})?$/;
const SIZE = /^([0-9]+(?:\.[0-9]+)?)([mgt])$/i;
const UNITS: Readonly<Record<string, number>> = { m: 1, g: 1024, t: 1024 * 1024 };
const COMPARISONS: Readonly<Record<string, string>> = {
  "=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
};
const PATTERNS: Readonly<Record<string, string>> = { "=~": "=~", "!~": "=~", "=*": "=*", "!*": "=*" };
const DEPTH_LIMIT = 32;

export function parseFilter(text: string): Filter {
  const parser = new Parser(tokens(text));
  const found = parser.alternatives(0);
  parser.expectEnd();
  return found;
}

function tokens(text: string): Token[] {
  const found: Token[] = [];
  const end = text.trimEnd().length;
  let position = 0;
  while (position < end) {
    SYNTAX.lastIndex = position;
    const match = SYNTAX.exec(text);
    const groups = Object.entries(match?.groups ?? {}).find(([, value]) => value !== undefined);
    if (!match || !groups) throw new FilterError(`cannot be understood from "${text.slice(position).slice(0, 30)}" on`);
    found.push({ kind: groups[0] as Token["kind"], text: groups[1] ?? "", at: position });
    position = SYNTAX.lastIndex;
  }
  return found;
}

class Parser {
  #next = 0;
  constructor(private readonly all: Token[]) {}

  alternatives(depth: number): Filter {
    return this.#chain("or", "|", depth);
  }

  expectEnd(): void {
    const token = this.all[this.#next];
    if (token) throw new FilterError(`"${token.text}" is not expected there`);
  }

  #chain(word: "or" | "and", operator: string, depth: number): Filter {
    if (depth > DEPTH_LIMIT) throw new FilterError(`is nested deeper than ${DEPTH_LIMIT} levels`);
    const part = () => (word === "or" ? this.#chain("and", "&", depth) : this.#factor(depth));
    const parts = [part()];
    while (this.#take("word", word)) parts.push(part());
    return parts.length === 1 ? (parts[0] as Filter) : [operator, ...parts];
  }

  #factor(depth: number): Filter {
    if (depth > DEPTH_LIMIT) throw new FilterError(`is nested deeper than ${DEPTH_LIMIT} levels`);
    if (this.#take("word", "not")) return ["!", this.#factor(depth + 1)];
    if (this.#take("operator", "(")) {
      const inside = this.alternatives(depth + 1);
      if (!this.#take("operator", ")")) throw new FilterError("lacks a closing parenthesis");
      return inside;
    }
    return this.#condition();
  }

  #condition(): Filter {
    const first = this.#pop("a field or a value");
    const negated = this.#take("word", "not");
    if (this.#take("word", "in")) {
      const inside: Filter = ["=[]", this.#pop("a field").text, valueOf(first)];
      return negated ? ["!", inside] : inside;
    }
    if (negated || first.kind !== "word") throw new FilterError(`lacks "in" after "${first.text}"`);
    return this.#comparison(first.text);
  }

  #comparison(field: string): Filter {
    const token = this.all[this.#next];
    if (token?.kind !== "operator" || token.text === "(" || token.text === ")") return ["?", field];
    this.#next += 1;
    const operand = this.#pop("a value");
    const comparison = COMPARISONS[token.text];
    if (comparison) return [comparison, field, valueOf(operand)];
    const matches: Filter = [PATTERNS[token.text] ?? "=~", field, patternOf(operand)];
    return token.text.startsWith("!") ? ["!", matches] : matches;
  }

  #pop(wanted: string): Token {
    const token = this.all[this.#next];
    if (!token || token.kind === "operator") throw new FilterError(`lacks ${wanted} at the end or before an operator`);
    this.#next += 1;
    return token;
  }

  #take(kind: Token["kind"], text: string): boolean {
    const token = this.all[this.#next];
    if (token?.kind !== kind || token.text !== text) return false;
    this.#next += 1;
    return true;
  }
}

function valueOf(token: Token): string | number | boolean {
  if (token.kind === "text") return token.text.slice(1, -1).replace(/\\(.)/g, "$1");
  if (token.text === "true" || token.text === "false") return token.text === "true";
  return NUMBER.test(token.text) ? Number(token.text) : token.text;
}

function patternOf(token: Token): string {
  if (token.kind === "pattern") {
    const end = token.text.lastIndexOf("/");
    const flags = token.text.slice(end + 1) ? "(?i)" : "";
    return flags + token.text.slice(2, end).replace(/\\\//g, "/");
  }
  return token.kind === "text" ? token.text.slice(1, -1) : token.text;
}

/** The fields that a filter reads. */
export function fieldsOf(filter: Filter): string[] {
  const [operator, ...rest] = filter;
  if (operator === "&" || operator === "|" || operator === "!")
    return rest.flatMap((part) => fieldsOf(part as Filter));
  return [String(rest[0])];
}

export function compileFilter(filter: Filter): Test {
  const [operator, ...rest] = filter;
  if (operator === "&" || operator === "|") {
    const parts = rest.map((part) => compileFilter(part as Filter));
    return operator === "&" ? (row) => parts.every((part) => part(row)) : (row) => parts.some((part) => part(row));
  }
  if (operator === "!") {
    const inner = compileFilter(rest[0] as Filter);
    return (row) => !inner(row);
  }
  const field = String(rest[0]);
  if (operator === "?") return (row) => isTrue(row[field]);
  const test = comparisonOf(operator, rest[1]);
  return (row) => {
    const value = row[field];
    return value !== undefined && value !== null && test(value);
  };
}

function isTrue(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}

function comparisonOf(operator: string, operand: unknown): (value: unknown) => boolean {
  if (operator === "=~" || operator === "=*") {
    const pattern = expressionOf(operator, String(operand));
    return (value) => (Array.isArray(value) ? value : [value]).some((one) => pattern.test(String(one)));
  }
  if (operator === "=[]") return (value) => Array.isArray(value) && value.some((one) => isSame(one, operand));
  if (operator === "=") return (value) => isEqual(value, operand);
  if (operator === "!=") return (value) => !isEqual(value, operand);
  return (value) => {
    const other = typeof value === "number" ? asNumber(operand) : operand;
    if (typeof value !== typeof other) return false;
    const order = (value as number) < (other as number) ? -1 : (value as number) > (other as number) ? 1 : 0;
    return { "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0 }[operator] ?? false;
  };
}

function isEqual(value: unknown, operand: unknown): boolean {
  if (Array.isArray(value)) return value.some((one) => isSame(one, operand));
  return isSame(value, operand);
}

function isSame(value: unknown, operand: unknown): boolean {
  if (typeof value === "number") return value === asNumber(operand);
  if (typeof value === "boolean") return value === operand;
  // A host name may be shortened to its first label, as on the command line.
  return String(value) === String(operand) || String(value).startsWith(`${String(operand)}.`);
}

/** A size such as 2g is compared in MiB. */
function asNumber(operand: unknown): unknown {
  const [, digits, unit] = SIZE.exec(String(operand)) ?? [];
  return digits && unit ? Number(digits) * (UNITS[unit.toLowerCase()] ?? 1) : operand;
}

function expressionOf(operator: string, text: string): RegExp {
  const folded = text.startsWith("(?i)");
  const body = folded ? text.slice(4) : text;
  try {
    return new RegExp(operator === "=*" ? `^${globOf(body)}$` : body, folded ? "i" : "");
  } catch {
    throw new FilterError(`has an invalid pattern "${body}"`);
  }
}

function globOf(text: string): string {
  return text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
}

/** What the search field means: a filter, or, for plain words, names and tags that contain all of them. */
export function searchOf(text: string, known: ReadonlySet<string>): { test: Test; fields: string[] } | null {
  const trimmed = text.trim();
  if (!trimmed) return null;
  const words = trimmed.split(/\s+/);
  const isPlain = !/[=<>!()"']/.test(trimmed) && !words.some((word) => known.has(word) || /^(in|not|and|or)$/.test(word));
  if (isPlain) {
    const lowered = words.map((word) => word.toLowerCase());
    const test: Test = (row) => {
      const text = `${String(row["name"] ?? row["id"] ?? "")} ${String(row["summary"] ?? "")} ${String(row["tags"] ?? "")} ${String(row["status"] ?? "")}`.toLowerCase();
      return lowered.every((word) => text.includes(word));
    };
    return { test, fields: [] };
  }
  const filter = parseFilter(trimmed);
  const fields = fieldsOf(filter);
  const unknown = fields.find((name) => known.size > 0 && !known.has(name));
  if (unknown) throw new FilterError(`has the unknown field "${unknown}"`);
  return { test: compileFilter(filter), fields };
}
