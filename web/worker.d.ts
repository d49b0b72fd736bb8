/** The worker that runs Python: imported by a script that `env.workerUrl` names. It has no exports. */
export {};
