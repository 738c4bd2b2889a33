/* Shared by pages about memory: the groups of items of a GPU's memory, from the bottom up. */
const GIB = 2 ** 30;
const MEMORY_PARTS = [
  ["weights", "Weights", ["weights"]],
  ["gradients", "Gradients", ["gradients"]],
  ["optimizer", "Optimizer", ["optimizer"]],
  ["activations", "Activations", ["activations"]],
  ["offload", "Offload buffers", ["offload_buffers"]],
  ["head", "Head and loss", ["head"]],
  ["layer", "Running layer", ["transient", "pipeline"]],
  ["other", "Other buffers", ["rope_tables", "workspace", "gather_buffer"]],
  ["rounding", "Allocator's rounding", ["rounding"]],
].map(([key, title, items], i) => ({ key, title, items, number: i + 1, color: `var(--memory-${key})` }));
/* The parts that `items` take, for a bar of parts; `textOf` gives bytes as text. */
const bytesParts = (parts, items, textOf) => parts.map(part => {
  const value = bytesOf(part, items);
  return { ...part, value, text: textOf(value) };
});
const bytesOf = (part, items) => part.items.reduce((sum, item) => sum + (items[item] || 0), 0);
