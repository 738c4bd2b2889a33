/*
 * Attention where cuDNN's header was not found by the build: opening says so, and as nothing can
 * be made without opening, nothing else is ever called.
 */
#include "device/cuda/attention.h"

#include <assert.h>

static int absent(struct erg_error *err)
{
    return erg_fail(err, ERG_NO_DEVICE,
                    "opening cuDNN: this ergon was built without cuDNN's header, expected "
                    "cudnn_graph.h beside CUDA's headers or in $CUDNN_HOME/include");
}

int erg_cudnn_open(struct erg_cudnn **cudnn, const struct erg_cuda *cuda, const char *plan_folder,
                   struct erg_error *err)
{
    (void)cudnn, (void)cuda, (void)plan_folder;
    return absent(err);
}

void erg_cudnn_close(struct erg_cudnn *cudnn)
{
    assert(!cudnn);
    (void)cudnn;
}

int erg_attention_new(struct erg_attention **attention, struct erg_cudnn *cudnn,
                      const struct erg_attention_shape *shape, struct erg_error *err)
{
    (void)attention, (void)cudnn, (void)shape;
    return absent(err);
}

void erg_attention_free(struct erg_attention *attention)
{
    assert(!attention);
    (void)attention;
}

size_t erg_attention_forward_bytes(const struct erg_attention *attention)
{
    (void)attention;
    return 0;
}

size_t erg_attention_backward_bytes(const struct erg_attention *attention)
{
    (void)attention;
    return 0;
}

int erg_attention_forward(struct erg_attention *attention,
                          const struct erg_attention_buffers *buffers, void *workspace, int ctas,
                          struct CUstream_st *stream, struct erg_error *err)
{
    (void)attention, (void)buffers, (void)workspace, (void)ctas, (void)stream;
    return absent(err);
}

int erg_attention_backward(struct erg_attention *attention,
                           const struct erg_attention_buffers *buffers, void *workspace, int ctas,
                           struct CUstream_st *stream, struct erg_error *err)
{
    (void)attention, (void)buffers, (void)workspace, (void)ctas, (void)stream;
    return absent(err);
}

int erg_attention_verify(struct erg_attention *attention,
                         const struct erg_attention_buffers *buffers, void *workspace,
                         struct CUstream_st *stream, struct erg_error *err)
{
    (void)attention, (void)buffers, (void)workspace, (void)stream;
    return absent(err);
}
