// @ts-check
/**
 * Summarize an ONNX file from the parts that a scanner has kept: operators, functions, external data. Nothing is validated: a malformed
 * file is `broken`, and the runtime reports the error.
 *
 * Source: onnx.proto3.
 */

import { around, headerOf, partOf, Scanner } from './scanner.js';

/** @typedef {{field: number, begin: number, end: number}} Field of a message: where its content is */

const MODEL = { graph: 7, functions: 25 };
const GRAPH = { node: 1, initializer: 5 };
const NODE = { op_type: 4, attribute: 5, domain: 7 };
const ATTRIBUTE = { g: 6, graphs: 11 };
const FUNCTION = { name: 1, domain: 10 };
const TENSOR = { external_data: 13 };
const ENTRY = { key: 1, value: 2 };

/** Maximum nesting of subgraphs that are read. */
const DEEPEST = 32;

const text = new TextDecoder();

export class Summary {
  /** Nodes by operator; names start with `domain` and a dot, except in ai.onnx. @type {Map<string, {domain: string, type: string, count: number}>} */
  operators = new Map();
  /** Functions of the model, named like operators. @type {Set<string>} */
  functions = new Set();
  /** External data files. @type {Set<string>} */
  external = new Set();
  #segments;

  /** @param {Scanner} scanner a scanner that has read the file, or its start */
  constructor(scanner) {
    this.#segments = scanner.kept;
    this.broken = scanner.isSenseless;
    for (const { field, begin, end } of this.#fields(0, Infinity)) {
      if (field === MODEL.graph) this.#graph(begin, end, 0);
      else if (field === MODEL.functions) this.functions.add(this.#name(begin, end, FUNCTION.name, FUNCTION.domain).name);
    }
  }

  /**
   * Return the unsupported operators: those that neither this runtime nor, as far as read, the model defines.
   * @param {Record<string, readonly string[]>} known supported operators by domain
   */
  unsupported(known) {
    const missing = [];
    for (const [name, { domain, type, count }] of this.operators) {
      if (!known[domain]?.includes(type) && !this.functions.has(name)) missing.push({ name, count });
    }
    return missing;
  }

  /** Yield the messages and strings in a message, as far as it has arrived. @param {number} at @param {number} end @returns {Generator<Field>} */
  * #fields(at, end) {
    while (at < end) {
      const segment = around(this.#segments, at);
      const found = segment && headerOf(segment.bytes.subarray(at - segment.at, at - segment.at + 20));
      if (!found) return;
      const begin = at + found.length;
      at = begin + found.size;
      if (found.wire === 2) yield { field: found.field, begin, end: at };
    }
  }

  /** @param {number} begin @param {number} end */
  #text(begin, end) {
    return text.decode(partOf(this.#segments, begin, end - begin) ?? new Uint8Array());
  }

  /**
   * Return the qualified name of an operator or a function.
   * @param {number} begin
   * @param {number} end
   * @param {number} typeField
   * @param {number} domainField
   */
  #name(begin, end, typeField, domainField) {
    let [type, domain] = ['', ''];
    for (const { field, begin: from, end: to } of this.#fields(begin, end)) {
      if (field === typeField) type = this.#text(from, to);
      else if (field === domainField) domain = this.#text(from, to);
    }
    if (domain === 'ai.onnx') domain = '';
    return { type, domain, name: domain ? `${domain}.${type}` : type };
  }

  /** @param {number} begin @param {number} end @param {number} depth */
  #graph(begin, end, depth) {
    for (const { field, begin: from, end: to } of this.#fields(begin, end)) {
      if (field === GRAPH.node) this.#node(from, to, depth);
      else if (field === GRAPH.initializer) this.#initializer(from, to);
    }
  }

  /** @param {number} begin @param {number} end @param {number} depth */
  #node(begin, end, depth) {
    const { type, domain, name } = this.#name(begin, end, NODE.op_type, NODE.domain);
    const known = this.operators.get(name) ?? { domain, type, count: 0 };
    known.count += 1;
    this.operators.set(name, known);
    if (depth === DEEPEST) return;
    for (const attribute of this.#fields(begin, end)) {
      if (attribute.field !== NODE.attribute) continue;
      for (const { field, begin: from, end: to } of this.#fields(attribute.begin, attribute.end)) {
        if (field === ATTRIBUTE.g || field === ATTRIBUTE.graphs) this.#graph(from, to, depth + 1);
      }
    }
  }

  /** @param {number} begin @param {number} end */
  #initializer(begin, end) {
    for (const entry of this.#fields(begin, end)) {
      if (entry.field !== TENSOR.external_data) continue;
      let [key, value] = ['', ''];
      for (const { field, begin: from, end: to } of this.#fields(entry.begin, entry.end)) {
        if (field === ENTRY.key) key = this.#text(from, to);
        else if (field === ENTRY.value) value = this.#text(from, to);
      }
      if (key === 'location') this.external.add(value);
    }
  }
}

/** Bytes of a Blob that are read at a time. */
const SLICE = 1 << 18;

/** Summarize a file without reading its weights. @param {Blob} blob @param {AbortSignal} [signal] */
export async function summaryOf(blob, signal) {
  const scanner = new Scanner(blob.size);
  while (scanner.at < blob.size && !scanner.isBroken) {
    signal?.throwIfAborted();
    if (scanner.passing) scanner.skip();
    scanner.push(new Uint8Array(await blob.slice(scanner.at, scanner.at + SLICE).arrayBuffer()));
  }
  scanner.end();
  return new Summary(scanner);
}
