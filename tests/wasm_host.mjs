// Runs WebAssembly for tests/wasm.py: one memory, modules over it. A message is a line of JSON, then `n` bytes.
import { readSync, writeSync } from 'node:fs';

const memory = new WebAssembly.Memory({ initial: 1 });
const modules = new Map();

let ahead = Buffer.alloc(0);

function more() {
  const chunk = Buffer.alloc(1 << 16);
  const count = readSync(0, chunk, 0, chunk.length, null);
  if (!count) process.exit(0);
  ahead = Buffer.concat([ahead, chunk.subarray(0, count)]);
}

function line() {
  while (!ahead.includes(10)) more();
  const end = ahead.indexOf(10);
  const text = ahead.toString('utf8', 0, end);
  ahead = ahead.subarray(end + 1);
  return JSON.parse(text);
}

function bytes(count) {
  while (ahead.length < count) more();
  const found = ahead.subarray(0, count);
  ahead = ahead.subarray(count);
  return found;
}

function writeAll(data) {
  for (let at = 0; at < data.length;) at += writeSync(1, data, at);
}

const actions = {
  grow({ pages }) {
    const missing = pages - memory.buffer.byteLength / 65536;
    if (missing > 0) memory.grow(missing);
  },
  write({ at }, data) {
    new Uint8Array(memory.buffer).set(data, at);
  },
  read({ at, count }) {
    return Buffer.from(memory.buffer, at, count);
  },
  load({ number }, data) {
    modules.set(number, new WebAssembly.Instance(new WebAssembly.Module(data), { env: { memory } }).exports);
  },
  run({ number, names }) {
    for (const name of names) modules.get(number)[name]();
  },
  drop({ number }) {
    modules.delete(number);
  },
};

for (;;) {
  const message = line();
  const data = bytes(message.n);
  let [answer, error] = [Buffer.alloc(0), ''];
  try {
    answer = actions[message.what](message, data) ?? answer;
  } catch (caught) {
    error = String(caught);
  }
  writeAll(Buffer.from(`${JSON.stringify({ error, n: answer.length })}\n`));
  writeAll(answer);
}
