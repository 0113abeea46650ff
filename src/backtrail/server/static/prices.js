// Prices per million tokens, as the reader enters them; there are none otherwise. They are kept in this browser.

const KEPT = "backtrail-prices";

// [{ model, input, cached, output }]; a model is the start of a model's name.
export function prices() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? [];
  } catch {
    return [];
  }
}

export const keepPrices = (table) => localStorage.setItem(KEPT, JSON.stringify(table));

// The cost of tokens: what the messages say, else by the table; null if a model has no price.
export function costOf({ by_model: models, cost }) {
  if (cost !== null && cost !== undefined) return cost;
  const table = prices();
  let sum = 0;
  const used = Object.entries(models ?? {});
  for (const [model, tokens] of used) {
    const price = table.filter((row) => row.model && model.startsWith(row.model)).sort((a, b) => b.model.length - a.model.length)[0];
    if (!price) return null;
    sum += ((tokens.input - tokens.cached) * price.input + tokens.cached * price.cached + tokens.output * price.output) / 1e6;
  }
  return used.length ? sum : null;
}

export const money = (amount) => `$${amount < 1 ? amount.toFixed(4) : amount.toFixed(2)}`;
