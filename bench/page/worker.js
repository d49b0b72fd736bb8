// @ts-check
/** The project's worker, counted. */

import './counters.js';
import '../web/worker.js';
