// @ts-check
/** The demo page. */

import './ui/app/main.js';
