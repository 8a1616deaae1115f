// Talks to a server with OpenAI's own client: `node client.mjs BASE_URL`, with the package in NODE_PATH's folder given as OPENAI_PACKAGE.
// Prints one JSON object: what each way of asking gave.
import { pathToFileURL } from "node:url";
const { default: OpenAI } = await import(pathToFileURL(process.env.OPENAI_PACKAGE + "/index.mjs"));
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const common = { model: "m", messages, temperature: 0, max_tokens: 12 };
const out = {};

const whole = await client.chat.completions.create(common);
out.whole = [whole.choices[0].message.content, whole.choices[0].finish_reason, whole.usage.completion_tokens];

let text = "", last = null, usage = null;
for await (const chunk of await client.chat.completions.create({ ...common, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  last = chunk.choices[0]?.finish_reason ?? last;
  usage = chunk.usage ?? usage;
}
out.streamed = [text, last, usage.completion_tokens];

const helper = client.chat.completions.stream(common);
let told = "";
helper.on("content", (delta) => { told += delta; });
const final = await helper.finalChatCompletion();
out.helper = [told, final.choices[0].finish_reason];

const completion = await client.completions.create({ model: "m", prompt: "The capital of France is", temperature: 0, max_tokens: 4 });
out.completion = completion.choices[0].text;

const logprobs = await client.chat.completions.create({ ...common, logprobs: true, top_logprobs: 2 });
out.logprobs = logprobs.choices[0].logprobs.content.length;

const response = await client.responses.create({ model: "m", input: "What is the capital of France?", temperature: 0, max_output_tokens: 12 });
out.response = response.output_text;

out.models = (await client.models.list()).data.map((model) => model.id);

try {
  await client.chat.completions.create({ ...common, temperature: 9 });
} catch (error) {
  out.error = [error.constructor.name, error.status, error.param];
}
console.log(JSON.stringify(out));
