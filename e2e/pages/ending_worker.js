// web/worker.js with `endPython()`.
import './ending.js';
import '../web/worker.js';
