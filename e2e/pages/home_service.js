import { outcome } from './home.js';

self.onmessage = async ({ source }) => source.postMessage(await outcome());
