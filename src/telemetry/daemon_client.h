/*
 * A client of the daemon of clocks and power limits (daemon/daemon.h, telemetry/daemon_wire.h).
 *
 * A connection belongs to the process that opened it. Any thread may make calls; one runs at a
 * time. They fail with ERG_NO_DEVICE and the daemon's message if it refuses, and also if it has
 * ended or does not answer for 10 s; after that the connection is unusable.
 */
#ifndef ERG_TELEMETRY_DAEMON_CLIENT_H
#define ERG_TELEMETRY_DAEMON_CLIENT_H

#include "telemetry/daemon_wire.h"

struct erg_daemon_client;

/* Also fails if the socket belongs neither to root nor to this user. */
int erg_daemon_connect(struct erg_daemon_client **client, const char *path,
                       struct erg_wire_hello *hello, struct erg_error *err);
/* The same for a connected socket, which the client owns from then on, even on failure. */
int erg_daemon_speak(struct erg_daemon_client **client, int socket, struct erg_wire_hello *hello,
                     struct erg_error *err);
void erg_daemon_disconnect(struct erg_daemon_client *client);

/*
 * Sets the sequence of a request, sends it and waits for the answer. `body` (may be NULL) is then
 * at the body of the answer, which is valid until the next call: only for clients of one thread.
 */
int erg_daemon_exchange(struct erg_daemon_client *client, struct erg_wire_request *request,
                        struct erg_wire_reader *body, struct erg_error *err);

/* The status of the latest answer: only for clients of one thread. */
enum erg_wire_status erg_daemon_said(const struct erg_daemon_client *client);

/* The GPUs and this process's rights to them. */
int erg_daemon_ask_gpu(struct erg_daemon_client *client, uint32_t index, struct erg_wire_gpu *gpu,
                       struct erg_error *err);

/* A lease of a knob. It ends when the daemon hears nothing of this client for `ttl_ms`. */
int erg_daemon_take_lease(struct erg_daemon_client *client, uint32_t index, enum erg_knob knob,
                          uint64_t *lease, uint32_t *ttl_ms, struct erg_error *err);

/*
 * CLOCK or POWER under a lease, and the times of the driver's call; all 0 while the change is
 * pending because the request did not ask to wait.
 */
int erg_daemon_change(struct erg_daemon_client *client, struct erg_wire_request *request,
                      struct erg_wire_change *change, struct erg_error *err);

/* Why a lease has ended before it was released, or NULL: valid until the next call. Waits for
 * nothing. `lease` is set to its number. */
const char *erg_daemon_ended_lease(struct erg_daemon_client *client, uint64_t *lease);

#endif
