/** Operations as the server's OpenAPI document declares them, for forms. */
import { useEffect, useState } from "preact/hooks";
import type { OperationId } from "../actions/actions";
import { reason, send } from "./client";
import type { Request } from "./client";

export interface Schema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly default?: unknown;
  readonly description?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly $ref?: string;
}

export interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required?: boolean;
  readonly description?: string;
  readonly schema: Schema;
}

export interface Operation {
  readonly id: OperationId;
  readonly method: Request["method"];
  readonly path: string;
  readonly summary: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
}

type Document = {
  paths: Record<string, Record<string, {
    operationId: string; summary: string; parameters?: Parameter[];
    requestBody?: { content: Record<string, { schema: Schema }> };
  }>>;
};

let loaded: Promise<ReadonlyMap<string, Operation>> | null = null;

/** Return all operations by their id; the document is requested once. */
export function allOperations(): Promise<ReadonlyMap<string, Operation>> {
  loaded ??= send<Document>({ method: "GET", path: "/2/openapi.json" }).then(read);
  loaded.catch(() => { loaded = null; });
  return loaded;
}

function read(document: Document): ReadonlyMap<string, Operation> {
  const found = new Map<string, Operation>();
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, one] of Object.entries(methods))
      found.set(one.operationId, {
        id: one.operationId as OperationId, method: method.toUpperCase() as Request["method"], path, summary: one.summary,
        parameters: one.parameters ?? [], body: one.requestBody?.content["application/json"]?.schema ?? null,
      });
  return found;
}

export function useOperation(id: OperationId): { operation: Operation | null; problem: string | null } {
  const [found, setFound] = useState<{ operation: Operation | null; problem: string | null }>({ operation: null, problem: null });
  useEffect(() => {
    allOperations().then(
      (all) => setFound({ operation: all.get(id) ?? null, problem: all.has(id) ? null : `The server has no operation ${id}.` }),
      (error: unknown) => setFound({ operation: null, problem: reason(error) }),
    );
  }, [id]);
  return found;
}

export type Values = Readonly<Record<string, unknown>>;

/** The request of an operation with the values of its fields: those of the path, the query and the body. */
export function requestOf(operation: Operation, values: Values): Request {
  const query: Record<string, string | number> = {};
  const body: Record<string, unknown> = {};
  const places = new Map(operation.parameters.map((one) => [one.name, one.in]));
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined) continue;
    const place = places.get(name);
    if (place === "query") query[name] = typeof value === "boolean" ? Number(value) : (value as string | number);
    else if (place === undefined) body[name] = value;
  }
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name] ?? "")));
  const hasBody = operation.body !== null && (operation.body.required?.length || Object.keys(body).length || operation.method !== "GET");
  return { method: operation.method, path, query, ...(hasBody ? { body } : {}) };
}
