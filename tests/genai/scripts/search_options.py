"""Search options: penalties, n-grams, lengths, and sampling that leaves no choice."""

import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
prompt = tokenizer.encode("the the the cat")
results = {}

for name, options in {
    "plain": {},
    "repetition": {"repetition_penalty": 1.8},
    "ngrams": {"no_repeat_ngram_size": 2},
    "least": {"min_length": 30},
    "sampled": {"do_sample": True, "top_k": 1, "random_seed": 7},
}.items():
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=40, **options)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    results[name] = [int(t) for t in generator.get_sequence(0)]

known = og.GeneratorParams(model).get_search_options()
results["options"] = sorted(known)
try:
    params.set_search_options(no_such_option=1)
except RuntimeError as error:
    results["refused"] = "no_such_option" in str(error)
