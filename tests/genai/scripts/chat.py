"""A chat loop with one generator: what was said stays in its cache, and rewind_to starts over."""

import onnxruntime_genai as og

model = og.Model("model")
tokenizer = og.Tokenizer(model)
params = og.GeneratorParams(model)
params.set_search_options(max_length=120)
generator = og.Generator(model, params)

system = tokenizer.encode("be kind.\n")
generator.append_tokens(system)
results = {"turns": []}

for said in ("hello, who are you?", "and why?"):
    generator.append_tokens(tokenizer.encode(f"user: {said}\nyou: "))
    reply = []
    while not generator.is_done() and len(reply) < 15:
        generator.generate_next_token()
        reply.append(int(generator.get_next_tokens()[0]))
    results["turns"].append(tokenizer.decode(reply))

generator.rewind_to(len(system))
generator.append_tokens(tokenizer.encode("user: hello again\nyou: "))
for _ in range(10):
    generator.generate_next_token()
results["again"] = [int(t) for t in generator.get_sequence(0)]
results["count"] = generator.token_count()
