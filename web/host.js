// @ts-check
/** Runs Python in the page's thread. */

export * from './worker/host.js';
