/* Databases: any bytes as profile.db and as sweep.db are opened and read whole, or refused. */
#include "io/documents.h"
#include "io/store.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_row(void *context, const struct erg_store_row *row, struct erg_error *err)
{
    size_t *bytes = context;
    (void)err;
    *bytes += strlen(row->key.device) + strlen(row->key.signature) + strlen(row->work_name) +
              strlen(row->slot_name) + strlen(row->created_utc);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/tmp/ergon-fuzz-XXXXXX", path[64], other[80];
    struct erg_store *store;
    struct erg_documents *documents;
    json_t *document;
    size_t bytes = 0;
    if (!mkdtemp(folder))
        abort();
    snprintf(path, sizeof path, "%s/x.db", folder);
    for (int kind = 0; kind < 2; kind++) {
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
            abort();
        if (kind == 0 && erg_store_open(&store, path, NULL) == 0) {
            erg_store_each(store, read_row, &bytes, NULL);
            erg_store_close(store);
        }
        if (kind == 1 && erg_documents_open(&documents, path, NULL) == 0) {
            if (erg_documents_get(documents, "a", &document, NULL) == 0)
                json_decref(document);
            erg_documents_close(documents);
        }
        static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            snprintf(other, sizeof other, "%s%s", path, ends[i]);
            unlink(other);
        }
    }
    rmdir(folder);
    return 0;
}
