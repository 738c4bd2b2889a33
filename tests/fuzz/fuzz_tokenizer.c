/* libFuzzer: any bytes as a tokenizer.json; what is accepted encodes text into ids of its own. */
#include "train/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const char text[] = "The thesis' 123  words,\n\tcafe\u0301 \u6570\u5b57 <|end|>!";
    struct erg_error err;
    struct erg_tokenizer *tokenizer;
    if (erg_tokenizer_parse(&tokenizer, "tokenizer.json", (const char *)data, size, &err) != 0)
        return 0;
    struct erg_token_ids ids = {0};
    if (erg_tokenizer_encode(tokenizer, text, strlen(text), &ids, &err) == 0)
        for (size_t i = 0; i < ids.count; i++)
            if (ids.items[i] < 0 || ids.items[i] >= erg_tokenizer_words(tokenizer))
                abort();
    free(ids.items);
    erg_tokenizer_free(tokenizer);
    return 0;
}
