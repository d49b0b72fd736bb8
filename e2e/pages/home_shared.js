import { outcome } from './home.js';

self.onconnect = async ({ ports: [port] }) => port.postMessage(await outcome());
