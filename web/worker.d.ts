/** The worker that hosts Python: imported by a script that `env.workerUrl` names. It exports nothing. */
export {};
