/* Byte-level BPE: the symbols of one piece, merged by rank. */
#include "train/tokenizer/tokenizer_internal.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void erg_tokenizer_add_byte(struct erg_text *out, unsigned char byte)
{
    unsigned code = byte;
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!printable) /* 0-32, 127-160 and 173, in order */
        code = 256 + (byte <= 32 ? byte : byte <= 160 ? 33 + (byte - 127u) : 67u);
    if (code < 128)
        erg_text_add_bytes(out, (const char[]){(char)code}, 1);
    else
        erg_text_add_bytes(out,
                           (const char[]){(char)(0xc0 | code >> 6), (char)(0x80 | (code & 63))}, 2);
}

/* ---- merges ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

void erg_merges_init(struct erg_merges *merges, size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    merges->slots = erg_xcalloc(slots, sizeof *merges->slots);
    merges->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        merges->slots[i].pair = UINT64_MAX;
}

/* The slot of a pair, or the free one for it. */
static struct erg_merge *slot_of(const struct erg_merges *merges, uint64_t pair)
{
    size_t at = mix(pair) & merges->mask;
    while (merges->slots[at].pair != pair && merges->slots[at].pair != UINT64_MAX)
        at = (at + 1) & merges->mask;
    return &merges->slots[at];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

void erg_merges_set(struct erg_merges *merges, int32_t left, int32_t right, uint32_t rank,
                    int32_t id)
{
    uint64_t pair = pair_of(left, right);
    *slot_of(merges, pair) = (struct erg_merge){pair, rank, id};
}

/* The merge of a pair; NULL: none. */
static const struct erg_merge *find_merge(const struct erg_merges *merges, int32_t left,
                                          int32_t right)
{
    const struct erg_merge *slot = slot_of(merges, pair_of(left, right));
    return slot->pair == UINT64_MAX ? NULL : slot;
}

/* ---- one piece ---- */

struct symbol {
    int32_t id;           /* -1: merged into the previous one */
    size_t before, after; /* neighbours; SIZE_MAX: none */
};

/* Merges that were possible when found, lowest rank on top, leftmost of equal ones. */
struct candidate {
    uint32_t rank;
    size_t at; /* of the left symbol */
};
struct heap {
    struct candidate *items;
    size_t count, capacity;
};

static bool comes_first(struct candidate a, struct candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(struct heap *heap, struct candidate candidate)
{
    ERG_PUSH(heap, items, candidate);
    size_t at = heap->count - 1;
    for (; at && comes_first(candidate, heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = candidate;
}

static struct candidate heap_pop(struct heap *heap)
{
    struct candidate first = heap->items[0], last = heap->items[--heap->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && comes_first(heap->items[child + 1], heap->items[child]))
            child++;
        if (!comes_first(heap->items[child], last))
            break;
        heap->items[at] = heap->items[child];
    }
    if (heap->count)
        heap->items[at] = last;
    return first;
}

/* The merge of a symbol with the next one; NULL: none. */
static const struct erg_merge *merge_at(const struct erg_tokenizer *tokenizer,
                                        const struct symbol *symbols, size_t at)
{
    if (at == SIZE_MAX || symbols[at].after == SIZE_MAX)
        return NULL;
    return find_merge(&tokenizer->merges, symbols[at].id, symbols[symbols[at].after].id);
}

static void consider(struct heap *heap, const struct erg_tokenizer *tokenizer,
                     const struct symbol *symbols, size_t at)
{
    const struct erg_merge *merge = merge_at(tokenizer, symbols, at);
    if (merge)
        heap_push(heap, (struct candidate){merge->rank, at});
}

static void merge_all(const struct erg_tokenizer *tokenizer, struct symbol *symbols, size_t count)
{
    struct heap heap = {0};
    for (size_t i = 0; i < count; i++)
        consider(&heap, tokenizer, symbols, i);
    while (heap.count) {
        struct candidate top = heap_pop(&heap);
        struct symbol *left = &symbols[top.at];
        const struct erg_merge *merge = left->id < 0 ? NULL : merge_at(tokenizer, symbols, top.at);
        if (!merge || merge->rank != top.rank)
            continue; /* one of its symbols has been merged with another */
        struct symbol *right = &symbols[left->after];
        left->id = merge->id;
        right->id = -1;
        left->after = right->after;
        if (left->after != SIZE_MAX)
            symbols[left->after].before = top.at;
        consider(&heap, tokenizer, symbols, left->before);
        consider(&heap, tokenizer, symbols, top.at);
    }
    free(heap.items);
}

static int encode(const struct erg_tokenizer *tokenizer, const char *bytes, size_t length,
                  struct erg_token_ids *ids, struct erg_error *err)
{
    if (tokenizer->ignore_merges) {
        struct erg_text word = {0};
        for (size_t i = 0; i < length; i++)
            erg_tokenizer_add_byte(&word, (unsigned char)bytes[i]);
        const json_t *id = json_object_get(tokenizer->vocabulary, word.data);
        erg_text_release(&word);
        if (id) {
            ERG_PUSH(ids, items, (int32_t)json_integer_value(id));
            return 0;
        }
    }
    struct symbol *symbols = erg_xmalloc(length * sizeof *symbols);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        symbols[i] = (struct symbol){tokenizer->byte_ids[byte], i ? i - 1 : SIZE_MAX,
                                     i + 1 < length ? i + 1 : SIZE_MAX};
        if (symbols[i].id < 0) {
            free(symbols);
            return erg_fail(err, ERG_FAILED, "the tokenizer has no word for the byte 0x%02x", byte);
        }
    }
    merge_all(tokenizer, symbols, length);
    for (size_t i = 0; i < length; i++)
        if (symbols[i].id >= 0)
            ERG_PUSH(ids, items, symbols[i].id);
    free(symbols);
    return 0;
}

int erg_tokenizer_encode_piece(struct erg_tokenizer *tokenizer, const char *bytes, size_t length,
                               struct erg_token_ids *ids, struct erg_error *err)
{
    if (length > ERG_PIECE_BYTES_KEPT)
        return encode(tokenizer, bytes, length, ids, err);
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    struct erg_text_piece *piece = &tokenizer->pieces[mix(hash) % ERG_PIECES_KEPT];
    if (!piece->bytes || piece->length != length || memcmp(piece->bytes, bytes, length) != 0) {
        size_t first = ids->count;
        if (encode(tokenizer, bytes, length, ids, err) != 0)
            return -1;
        size_t count = ids->count - first, room = (length + 3) / 4 * 4;
        free(piece->bytes);
        piece->bytes = erg_xmalloc(room + count * sizeof *piece->ids);
        piece->ids = (int32_t *)(void *)(piece->bytes + room);
        piece->length = (uint32_t)length;
        piece->count = (uint32_t)count;
        memcpy(piece->bytes, bytes, length);
        memcpy(piece->ids, ids->items + first, count * sizeof *piece->ids);
        return 0;
    }
    ERG_RESERVE(ids, items, piece->count);
    memcpy(ids->items + ids->count, piece->ids, piece->count * sizeof *piece->ids);
    ids->count += piece->count;
    return 0;
}
