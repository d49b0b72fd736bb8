// What a model does in the place that runs this.
import { InferenceSession, Tensor } from '../web/pyruntime.js';

export async function outcome() {
  try {
    const session = await InferenceSession.create(new URL('/small/double.onnx', import.meta.url));
    const { y } = await session.run({ x: new Tensor('float32', Float32Array.of(1, -2, 3, -4), [1, 4]) });
    await session.release();
    return [...y.data].join();
  } catch ({ message }) {
    return message;
  }
}
