// Cases of models that match words with sounds, boxes and documents, and of text by prompts. As cases.js.
import { greedy, picture } from './cases.js';

/** Two sounds of other lengths, the second to be repeated. */
const sounds = [1920, 700].map((length, k) => Float32Array.from({ length }, (_, i) => Math.sin(i / (5 + k)) * 0.5 + Math.sin(i / 13) * 0.3));

export const matching = {
  async 'zero-shot-audio-classification'(t, options) {
    const classify = await t.pipeline('zero-shot-audio-classification', 'sounds-by-words', options);
    return [await classify(sounds, ['a cat', 'the city of paris', 'sport']), await classify(sounds[0], ['music'], { hypothesis_template: 'we love {}' })];
  },

  async 'zero-shot-object-detection'(t, options) {
    const detect = await t.pipeline('zero-shot-object-detection', 'boxes-by-words', options);
    const words = ['a cat', 'the great city of london', 'film'];
    return [await detect(picture(t, 64, 48), words, { threshold: 0.4 }), await detect([picture(t), picture(t, 20, 30)], words.slice(1), { percentage: true, top_k: 3 })];
  },

  async 'document-question-answering'(t, options) {
    const ask = await t.pipeline('document-question-answering', 'documents', options);
    return [await ask(picture(t, 48, 80), 'What is the city?', { max_new_tokens: 8 }), await ask(picture(t, 30, 30), 'Who?', { max_new_tokens: 5 })];
  },

  async 'text2text-generation'(t, options) {
    const write = await t.pipeline('text2text-generation', 'translator', options);
    return write(['the king of the city', 'what'], greedy);
  },
};
