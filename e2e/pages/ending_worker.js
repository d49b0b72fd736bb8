// web/worker.js with `endPython()`.
import './ending.js';
import '../src/web/worker.js';
