// @ts-check
/**
 * What an ONNX file says before its weights: operators, functions, external data. It is read as it arrives, weights are
 * skipped, nothing is judged: what is not understood makes it `broken`, and the runtime says what is wrong.
 * Source: onnx.proto3, whose writers put nodes before initializers.
 */

/** Nothing that tells about a model is longer than this; longer fields are weights. */
const LONGEST_FIELD = 1 << 26;
/** An initializer with external data is a name and a few entries. */
const LONGEST_REFERENCE = 1 << 13;

const MODEL = { graph: 7, functions: 25 };
const GRAPH = { node: 1, initializer: 5 };
const NODE = { op_type: 4, attribute: 5, domain: 7 };
const ATTRIBUTE = { g: 6, graphs: 11 };
const FUNCTION = { name: 1, domain: 10 };
const TENSOR = { external_data: 13 };
const ENTRY = { key: 1, value: 2 };

const text = new TextDecoder();

class Incomplete extends Error {}

/** @param {Uint8Array} data @param {number} at @returns {[number, number]} the value, and where it ends */
function varint(data, at) {
  let value = 0;
  for (let shift = 0; shift < 70; shift += 7) {
    if (at >= data.length) throw new Incomplete();
    const byte = data[at++];
    value += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return [value, at];
  }
  throw new RangeError('a number without end');
}

/**
 * Where the content of the field at `at` begins and ends.
 * @param {Uint8Array} data
 * @param {number} at
 * @returns {{field: number, wire: number, begin: number, end: number}}
 */
function fieldAt(data, at) {
  const [tag, after] = varint(data, at);
  const [field, wire] = [Math.floor(tag / 8), tag % 8];
  if (wire === 0) return { field, wire, begin: after, end: varint(data, after)[1] };
  if (wire === 1) return { field, wire, begin: after, end: after + 8 };
  if (wire === 5) return { field, wire, begin: after, end: after + 4 };
  if (wire !== 2) throw new RangeError(`wire type ${wire}`);
  const [length, begin] = varint(data, after);
  return { field, wire, begin, end: begin + length };
}

/** The length-delimited fields of a message. @param {Uint8Array} data @returns {Generator<[number, Uint8Array]>} */
function* fields(data) {
  for (let at = 0; at < data.length;) {
    const { field, wire, begin, end } = fieldAt(data, at);
    if (end > data.length) throw new RangeError('a field longer than its message');
    if (wire === 2) yield [field, data.subarray(begin, end)];
    at = end;
  }
}

export class Skeleton {
  constructor() {
    /** Nodes by operator: `domain` and a dot unless it is ONNX's own. @type {Map<string, {domain: string, type: string, count: number}>} */
    this.operators = new Map();
    /** Functions that the model brings, named as operators are. @type {Set<string>} */
    this.functions = new Set();
    /** Files that hold weights. @type {Set<string>} */
    this.external = new Set();
    /** Whether all nodes of the graph have been seen. */
    this.hasAllNodes = false;
    this.broken = false;
    /** Bytes to come that need not be looked at. */
    this.skip = 0;
    this.rest = new Uint8Array();
    this.offset = 0;
    this.graphEnd = -1;
  }

  /** The next bytes of the file. @param {Uint8Array} chunk */
  feed(chunk) {
    if (this.broken) return;
    const skipped = Math.min(this.skip, chunk.length);
    this.skip -= skipped;
    this.offset += skipped;
    let data = chunk.subarray(skipped);
    if (this.rest.length) {
      const joined = new Uint8Array(this.rest.length + data.length);
      joined.set(this.rest);
      joined.set(data, this.rest.length);
      data = joined;
    }
    try {
      const used = this.#read(data);
      this.offset += Math.min(used, data.length);
      this.skip += Math.max(0, used - data.length);
      this.rest = data.slice(used);
    } catch {
      this.broken = true;
    }
  }

  /** The file is at its end. */
  end() {
    this.hasAllNodes = true;
  }

  /** @param {Uint8Array} data @returns {number} how much of it is done with; more than there is where the rest is skipped */
  #read(data) {
    let at = 0;
    while (at < data.length) {
      if (this.graphEnd >= 0 && this.offset + at >= this.graphEnd) {
        this.graphEnd = -1;
        this.hasAllNodes = true;
      }
      const inGraph = this.graphEnd >= 0;
      /** @type {ReturnType<typeof fieldAt>} */
      let found;
      try {
        found = fieldAt(data, at);
      } catch (error) {
        if (error instanceof Incomplete) return at;
        throw error;
      }
      const { field, wire, begin, end } = found;
      if (!inGraph && wire === 2 && field === MODEL.graph) {
        this.graphEnd = this.offset + end;
        at = begin;
        continue;
      }
      if (wire === 2 && this.#tells(inGraph, field, end - begin)) {
        if (end > data.length) return at;
        this.#note(inGraph, field, data.subarray(begin, end));
      }
      if (end > data.length) return end;
      at = end;
    }
    return at;
  }

  /** @param {boolean} inGraph @param {number} field @param {number} length */
  #tells(inGraph, field, length) {
    if (!inGraph) return field === MODEL.functions && length < LONGEST_FIELD;
    if (field === GRAPH.initializer) {
      this.hasAllNodes = true;
      return length < LONGEST_REFERENCE;
    }
    return field === GRAPH.node && length < LONGEST_FIELD;
  }

  /** @param {boolean} inGraph @param {number} field @param {Uint8Array} data */
  #note(inGraph, field, data) {
    if (!inGraph) {
      const named = [...fields(data)];
      const get = (/** @type {number} */ wanted) => text.decode(named.find(([name]) => name === wanted)?.[1] ?? new Uint8Array());
      this.functions.add(nameOf(get(FUNCTION.domain), get(FUNCTION.name)));
    } else if (field === GRAPH.node) {
      this.#node(data, 0);
    } else {
      this.#initializer(data);
    }
  }

  /** @param {Uint8Array} data @param {number} depth */
  #node(data, depth) {
    let [domain, type] = ['', ''];
    for (const [field, value] of fields(data)) {
      if (field === NODE.op_type) type = text.decode(value);
      else if (field === NODE.domain) domain = text.decode(value);
      else if (field === NODE.attribute && depth < 32) this.#attribute(value, depth);
    }
    if (domain === 'ai.onnx') domain = '';
    const name = nameOf(domain, type);
    const known = this.operators.get(name) ?? { domain, type, count: 0 };
    known.count += 1;
    this.operators.set(name, known);
  }

  /** @param {Uint8Array} data @param {number} depth */
  #attribute(data, depth) {
    for (const [field, graph] of fields(data)) {
      if (field !== ATTRIBUTE.g && field !== ATTRIBUTE.graphs) continue;
      for (const [part, value] of fields(graph)) {
        if (part === GRAPH.node) this.#node(value, depth + 1);
        else if (part === GRAPH.initializer && value.length < LONGEST_REFERENCE) this.#initializer(value);
      }
    }
  }

  /** @param {Uint8Array} data */
  #initializer(data) {
    for (const [field, entry] of fields(data)) {
      if (field !== TENSOR.external_data) continue;
      const pair = new Map(fields(entry));
      const [key, value] = [pair.get(ENTRY.key), pair.get(ENTRY.value)];
      if (key && value && text.decode(key) === 'location') this.external.add(text.decode(value));
    }
  }

  /**
   * The operators that nobody implements: neither this runtime nor, as far as has been seen, the model.
   * @param {Record<string, readonly string[]>} known by domain
   */
  unsupported(known) {
    const missing = [];
    for (const [name, { domain, type, count }] of this.operators) {
      if (!known[domain]?.includes(type) && !this.functions.has(name)) missing.push({ name, count });
    }
    return missing;
  }
}

/** @param {string} domain @param {string} type */
function nameOf(domain, type) {
  return domain && domain !== 'ai.onnx' ? `${domain}.${type}` : type;
}

const SLICE = 1 << 18;

/** The skeleton of a file, weights left where they are. @param {Blob} blob @param {AbortSignal} [signal] */
export async function skeletonOf(blob, signal) {
  const skeleton = new Skeleton();
  for (let at = 0; at < blob.size && !skeleton.broken;) {
    signal?.throwIfAborted();
    skeleton.feed(new Uint8Array(await blob.slice(at, at + SLICE).arrayBuffer()));
    at += SLICE + skeleton.skip;
    skeleton.offset += skeleton.skip;
    skeleton.skip = 0;
  }
  skeleton.end();
  return skeleton;
}
