// An agent in Node with the npm package `openai`: search, calculate, answer. `npm ci` in this folder installs it.
import { text } from "node:stream/consumers";
import OpenAI from "openai";

const TURNS = 6;
const tool = (name, argument, description) => ({
  type: "function",
  function: {
    name,
    description,
    parameters: { type: "object", properties: { [argument]: { type: "string" } }, required: [argument] },
  },
});
const tools = [
  tool("search", "query", "Find passages about people, films, books and places"),
  tool("calculator", "expression", "The difference of two whole numbers, as 1990 - 1950"),
];
const functions = {
  async search({ query }) {
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ query, k: 2 });
    const found = await fetch(process.env.HOPFORGE_SEARCH_URL, { method: "POST", headers, body });
    const { results } = await found.json();
    return results.map((item) => `${item.title} : ${item.text}`).join("\n") || "( nothing found )";
  },
  async calculator({ expression }) {
    const numbers = /^\s*(\d+)\s*-\s*(\d+)\s*$/.exec(expression);
    return numbers ? String(numbers[1] - numbers[2]) : "Error : only NUMBER - NUMBER is known";
  },
};

async function answer(question) {
  const client = new OpenAI(); // OPENAI_BASE_URL and OPENAI_API_KEY say where the policy is
  const messages = [
    { role: "system", content: "Think , then use a tool or write the answer ." },
    { role: "user", content: `Question : ${question}` },
  ];
  let reply;
  for (let turn = 0; turn < TURNS; turn++) {
    reply = await client.chat.completions.create({ model: "policy", messages, tools });
    const { message } = reply.choices[0];
    messages.push(message);
    for (const call of message.tool_calls ?? []) {
      const content = await functions[call.function.name](JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
    if (message.tool_calls) continue;
    const found = /<answer>(.*?)<\/answer>/s.exec(message.content ?? "");
    if (found) return { answer: found[1].trim(), main: reply.id };
    messages.push({ role: "user", content: "Error : think , then write one tool or the answer ." });
  }
  return { answer: null, main: reply?.id };
}

console.log(JSON.stringify(await answer(JSON.parse(await text(process.stdin)).question)));
