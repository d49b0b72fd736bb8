// @ts-check
/** Hosts Python in the page's thread. */

export * from './worker/host.js';
