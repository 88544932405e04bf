/* The first unit: token vectors, plus position vectors where the family has them. */
#include "runtime/base/dtype.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

enum slot { TOKEN, POSITION };

/* In place, of the output or its gradient. */
static void drop(const shd_pass *pass, void *rows) {
    shd_dropout dropout;
    if (shd_pass_dropout(pass, SHD_DROPOUT_EMBEDDING, &dropout))
        pass->math.ops->dropout(&pass->math, &dropout, pass->rows, pass->length, pass->model->config.d_model, rows,
                                NULL, rows);
}

void shd_embedding_forward(const shd_pass *pass) {
    const shd_model *model = pass->model;
    bool positions = model->family->embedding.count > POSITION;
    const void *first = positions ? shd_const_element(pass->math.dtype, shd_pass_parameter(pass, POSITION).value,
                                                      pass->past * model->config.d_model)
                                  : NULL;
    pass->math.ops->embedding(&pass->math, pass->rows, pass->length, model->config.d_model, model->config.vocab_size,
                              pass->batch.inputs, shd_pass_parameter(pass, TOKEN).value, first,
                              pass->view->outputs[pass->view->unit]);
    drop(pass, pass->view->outputs[pass->view->unit]);
}

/* A tied token table has its gradient from the head already, whose backward ran first: add to it. */
void shd_embedding_backward(const shd_pass *pass) {
    const shd_model *model = pass->model;
    bool positions = model->family->embedding.count > POSITION;
    drop(pass, pass->flow);
    pass->math.ops->embedding_backward(&pass->math, pass->rows, pass->length, model->config.d_model,
                                       model->config.vocab_size, pass->batch.inputs, pass->flow,
                                       model->config.tied_embeddings, shd_pass_parameter(pass, TOKEN).gradient,
                                       positions ? shd_pass_parameter(pass, POSITION).gradient : NULL);
}
