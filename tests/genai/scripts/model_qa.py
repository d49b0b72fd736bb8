"""Questions and answers, as onnxruntime-genai's model-qa example does it: one generator a question."""

import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
results = {}

for question in ("what is the time?", "the cat sat on the mat. why?", "a"):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens(tokenizer.encode(question))
    answer = ""
    while True:
        generator.generate_next_token()
        if generator.is_done():
            break
        answer += stream.decode(generator.get_next_tokens()[0])
    results[question] = answer
    del generator
