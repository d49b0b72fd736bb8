/**
 * Holds the declarations that users see (web/*.d.ts) to the sources; `python3 dev.py lint` compiles it with web/.
 *
 * In a module next to its declarations, `import('./x.js')` means x.d.ts: web/pyruntime.js compares itself.
 */

import type declared from '../../web/pyruntime.js';
import type * as Public from '../../web/pyruntime.js';
import type { env } from '../../web/api/env.js';
import type { InferenceSession } from '../../web/api/session.js';
import type { Tensor } from '../../web/api/tensor.js';

/** Fails to compile unless its argument is `never`, which the error then names. */
type None<T extends never> = T;

/** Fails to compile unless `Source` can be used as `Target`, constructors aside: users call `create`. */
type Is<Source extends Omit<Target, never>, Target> = Source;

/** Of onnxruntime-web, for pages that come from it; they throw. */
type Refused = 'fromTexture' | 'fromMLTensor' | 'texture' | 'mlTensor';

/** What other modules of web/ call. */
type Internal = 'hostOf' | 'decoderOf';

/** What sources have and no declaration says. */
export type Undeclared = [
  None<Exclude<keyof Tensor, keyof Public.Tensor | Refused>>,
  None<Exclude<keyof typeof Tensor, keyof typeof Public.Tensor | Refused>>,
  None<Exclude<keyof InferenceSession, keyof Public.InferenceSession>>,
  None<Exclude<keyof typeof InferenceSession, keyof typeof Public.InferenceSession | Internal>>,
  None<Exclude<keyof typeof env, keyof typeof Public.env>>,
];

/** Names that can be imported and are not part of the default export, and the other way round. */
export type Unequal = [
  None<Exclude<keyof typeof Public, keyof typeof declared | 'default'>>,
  None<Exclude<keyof typeof declared, keyof typeof Public>>,
];

export type Statics = Is<typeof InferenceSession, typeof Public.InferenceSession>;
