/*
 * Documents: JSON texts under keys in one SQLite file (io/database.h), for results that are
 * complete in themselves and must not be lost. The first document of a key stays; a put is on the
 * disk when the call returns. For one thread.
 */
#ifndef ERG_IO_DOCUMENTS_H
#define ERG_IO_DOCUMENTS_H

#include "ergon/error.h"

#include <jansson.h>
#include <stddef.h>

struct erg_documents;

/* Opens the file, or makes it; its folder must exist. */
int erg_documents_open(struct erg_documents **documents, const char *path, struct erg_error *err);
void erg_documents_close(struct erg_documents *documents);

/* *document is a new reference, or NULL where there is none. */
int erg_documents_get(struct erg_documents *documents, const char *key, json_t **document,
                      struct erg_error *err);

/* An error about a document that only the caller can tell to be damaged, and why. Returns -1. */
int erg_documents_fail(const struct erg_documents *documents, const char *key, const char *why,
                       struct erg_error *err);

/* `about`: a description of the document for people. */
int erg_documents_put(struct erg_documents *documents, const char *key, const json_t *about,
                      const json_t *document, struct erg_error *err);

/* Adds all documents of another file whose keys are new; *added (may be NULL) counts them. */
int erg_documents_merge(struct erg_documents *documents, const char *path, size_t *added,
                        struct erg_error *err);

#endif
