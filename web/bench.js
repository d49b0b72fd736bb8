// @ts-check
import './ui/bench/page.js';
