import * as ort from 'onnxruntime-web/webgpu';

// A digit that is drawn on a canvas, classified: float32 in, float32 out.
ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

function preprocess(canvas, size) {
  const context = canvas.getContext('2d');
  context.fillStyle = 'black';
  context.fillRect(0, 0, size, size);
  context.strokeStyle = 'white';
  context.lineWidth = 2.5;
  context.beginPath();
  context.moveTo(3, 2.5);
  context.lineTo(13, 2.5);
  context.lineTo(7, 14);
  context.stroke();
  const { data } = context.getImageData(0, 0, size, size);
  const input = new Float32Array(size * size);
  for (let i = 0; i < input.length; i++) input[i] = data[4 * i] / 255;
  return new ort.Tensor('float32', input, [1, 1, size, size]);
}

async function main() {
  const session = await ort.InferenceSession.create('./models/digits.onnx', {
    executionProviders: ['webgpu'],
    graphOptimizationLevel: 'all',
    enableMemPattern: true,
    logSeverityLevel: 3,
    extra: { session: { disable_prepacking: '1' } },
  });
  const [{ name, isTensor, type, shape }] = session.inputMetadata;
  const input = preprocess(document.querySelector('#canvas'), shape[2]);
  const started = performance.now();
  const results = await session.run({ [session.inputNames[0]]: input });
  const output = results[session.outputNames[0]];
  const scores = Array.from(output.data);
  const best = scores.indexOf(Math.max(...scores));
  document.querySelector('#status').textContent = `It is a ${best} (${Math.round(performance.now() - started)} ms)`;
  await session.release();
  return {
    best, scores, dims: output.dims, type: output.type, size: output.size, location: output.location,
    input: { name, isTensor, type, rank: shape.length }, outputs: session.outputNames,
  };
}

globalThis.result = main();
