/**
 * Compares the declarations that users see (web/*.d.ts) with the sources; `python3 dev.py lint` compiles it with web/.
 *
 * In a module next to its declarations, `import('./x.js')` means x.d.ts, so web/pyruntime.js checks itself.
 */

import type declared from '../../web/pyruntime.js';
import type * as Public from '../../web/pyruntime.js';
import type { env } from '../../web/api/env.js';
import type { InferenceSession } from '../../web/api/session.js';
import type { Tensor } from '../../web/api/tensor.js';

/** Fails to compile unless its argument is `never`; the error names the type. */
type None<T extends never> = T;

/** Fails to compile unless `Source` can be used as `Target`, except for constructors: users call `create`. */
type Is<Source extends Omit<Target, never>, Target> = Source;

/** Members of onnxruntime-web that throw here, for pages that were written for it. */
type Refused = 'fromTexture' | 'fromMLTensor' | 'texture' | 'mlTensor';

/** Members that other modules of web/ call. */
type Internal = 'hostOf' | 'decoderOf';

/** Members of sources that have no declaration. */
export type Undeclared = [
  None<Exclude<keyof Tensor, keyof Public.Tensor | Refused>>,
  None<Exclude<keyof typeof Tensor, keyof typeof Public.Tensor | Refused>>,
  None<Exclude<keyof InferenceSession, keyof Public.InferenceSession>>,
  None<Exclude<keyof typeof InferenceSession, keyof typeof Public.InferenceSession | Internal>>,
  None<Exclude<keyof typeof env, keyof typeof Public.env>>,
];

/** Names that are exported but not part of the default export, and the reverse. */
export type Unequal = [
  None<Exclude<keyof typeof Public, keyof typeof declared | 'default'>>,
  None<Exclude<keyof typeof declared, keyof typeof Public>>,
];

export type Statics = Is<typeof InferenceSession, typeof Public.InferenceSession>;
