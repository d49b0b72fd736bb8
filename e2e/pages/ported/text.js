import * as ort from 'onnxruntime-web/webgpu';

// Sentence embeddings: int64 inputs of any length, several outputs, some of them fetched.
ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const VOCABULARY = ['[PAD]', '[UNK]', 'a', 'cat', 'dog', 'sits', 'runs', 'on', 'the', 'mat', 'street'];

function tokenize(sentences) {
  const rows = sentences.map((text) => text.split(' ').map((word) => Math.max(1, VOCABULARY.indexOf(word))));
  const length = Math.max(...rows.map((row) => row.length));
  const ids = new BigInt64Array(rows.length * length);
  const mask = new BigInt64Array(rows.length * length);
  rows.forEach((row, i) => row.forEach((id, j) => {
    ids[i * length + j] = BigInt(id);
    mask[i * length + j] = 1n;
  }));
  const dims = [rows.length, length];
  return { input_ids: new ort.Tensor('int64', ids, dims), attention_mask: new ort.Tensor(mask, dims) };
}

function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

async function main() {
  const response = await fetch('./models/text.onnx');
  const model = await response.arrayBuffer();
  const session = await ort.InferenceSession.create(model, {
    executionProviders: ['webgpu', 'wasm'],
    freeDimensionOverrides: { hidden: 8 },
  });
  const feeds = tokenize(['the cat sits on the mat', 'a dog runs', 'a cat runs on the street']);
  const everything = await session.run(feeds);
  const { token_count: count } = everything;
  const pooled = await session.run(feeds, ['pooled']);
  const filled = await session.run(feeds, { pooled: null }, { tag: 'again' });
  const rows = [0, 1, 2].map((i) => Array.from(pooled.pooled.data.subarray(8 * i, 8 * i + 8)));
  const wrong = await session.run({ input_ids: feeds.input_ids }).then(() => 'ran', () => 'refused');
  await session.release();
  return {
    names: [session.inputNames, session.outputNames],
    shapes: Object.fromEntries(Object.entries(everything).map(([name, { type, dims }]) => [name, [type, [...dims]]])),
    hidden: Array.from(everything.hidden.data),
    counts: Array.from(count.data, String),
    similar: [cosine(rows[0], rows[1]), cosine(rows[0], rows[2])],
    only: Object.keys(pooled),
    filled: [Object.keys(filled), Array.from(filled.pooled.data)],
    wrong,
  };
}

globalThis.result = main();
