// Gives the worker an adapter of a named target: the device is requested with these limits and features, which the browser then enforces.
const text = new URL(self.location.href).searchParams.get('target');

if (text) {
  const { limits, features, level } = JSON.parse(text);
  const request = navigator.gpu.requestAdapter.bind(navigator.gpu);
  navigator.gpu.requestAdapter = async (options) => {
    if (level === 'compatibility' && options?.featureLevel !== level) return null;
    const adapter = await request(options);
    return adapter && {
      info: adapter.info,
      limits,
      features: new Set(features.filter((name) => adapter.features.has(name))),
      requestDevice: (descriptor) => adapter.requestDevice(descriptor),
    };
  };
}
