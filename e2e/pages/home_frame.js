import { outcome } from './home.js';

parent.postMessage(await outcome(), '*');
