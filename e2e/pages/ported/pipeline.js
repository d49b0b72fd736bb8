import * as ort from 'onnxruntime-web/webgpu';

// A picture through two models. Between them it stays on the GPU, and the page's own commands read and write there, too.
ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

function paint(canvas) {
  const context = canvas.getContext('2d');
  const { width, height } = canvas;
  for (let x = 0; x < width; x++) {
    context.fillStyle = `rgb(${5 * x}, ${255 - 5 * x}, ${(x * 37) % 256})`;
    context.fillRect(x, 0, 1, height);
  }
  context.fillStyle = 'white';
  context.fillRect(width / 4, height / 4, width / 2, height / 2);
  return context.getImageData(0, 0, width, height);
}

async function readBack(device, buffer, size) {
  const staging = device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const data = new Float32Array(staging.getMappedRange().slice(0));
  staging.destroy();
  return data;
}

async function main() {
  const canvas = document.querySelector('#canvas');
  const image = paint(canvas);
  const blur = await ort.InferenceSession.create('./models/blur.onnx', {
    executionProviders: ['webgpu'],
    preferredOutputLocation: 'gpu-buffer',
  });
  const edges = await ort.InferenceSession.create('./models/edges.onnx', {
    executionProviders: [{ name: 'webgpu', preferredLayout: 'NCHW' }],
    preferredOutputLocation: { edges: 'gpu-buffer', strength: 'cpu' },
  });
  const device = await ort.env.webgpu.device;

  // Picture to tensor to tensor.
  const picture = await ort.Tensor.fromImage(image, { tensorFormat: 'RGB' });
  const { blurred } = await blur.run({ picture });
  const place = [blurred.location, blurred.gpuBuffer instanceof GPUBuffer, blurred.dims];
  const result = await edges.run({ picture: blurred });
  const locations = [result.edges.location, result.strength.location];
  const direct = await readBack(device, result.edges.gpuBuffer, result.edges.size * 4);
  const data = await result.edges.getData();
  const same = direct.every((value, i) => value === data[i]);

  // Memory of the page's own: as an input, and to be written to.
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const bytes = picture.data.byteLength;
  const [inputBuffer, outputBuffer] = [0, 1].map(() => device.createBuffer({ size: Math.ceil(bytes / 16) * 16, usage }));
  device.queue.writeBuffer(inputBuffer, 0, picture.data);
  const dims = picture.dims;
  const input = ort.Tensor.fromGpuBuffer(inputBuffer, { dataType: 'float32', dims });
  const output = ort.Tensor.fromGpuBuffer(outputBuffer, { dataType: 'float32', dims });
  const own = await blur.run({ picture: input }, { blurred: output });
  const ownData = await readBack(device, outputBuffer, bytes);
  const blurredData = await blurred.getData(true);
  const agree = ownData.every((value, i) => Math.abs(value - blurredData[i]) < 1e-6);

  // And back to a picture.
  const shown = new ort.Tensor('float32', blurredData, dims).toImageData({ format: 'RGB', tensorLayout: 'NCHW' });
  canvas.getContext('2d').putImageData(shown, 0, 0);
  result.edges.dispose();
  const disposed = result.edges.location;
  input.dispose();
  await Promise.all([blur.release(), edges.release()]);
  inputBuffer.destroy();
  outputBuffer.destroy();
  return {
    place, locations, same, agree, disposed, own: own.blurred === output,
    edges: Array.from(data), strength: Array.from(result.strength.data), dims: result.edges.dims,
    pixels: Array.from(shown.data), size: [shown.width, shown.height], picture: Array.from(picture.data),
  };
}

globalThis.result = main();
