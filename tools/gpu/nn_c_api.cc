// The C interface (c_api.h) of tfo.nn's row functions.
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"
#include "tools/gpu/c_api.h"

namespace tfo {
namespace {

// Sizes and options of the row functions; each uses some.
struct RowArgs {
  int64_t rows, classes;
  int64_t ignore_index;
  double label_smoothing, z_loss;
  bool ignores, log_prob;
  bool log;          // of the softmax
  bool wide_labels;  // int64
  bool unit;         // p is the unit Gaussian

  LabelLossOptions Options() const {
    return {ignores, ignore_index, label_smoothing, z_loss, log_prob};
  }
};

Labels LabelsOf(const RowArgs& args, const Pointer& labels) {
  if (args.wide_labels) return static_cast<const int64_t*>(labels.address);
  return static_cast<const int32_t*>(labels.address);
}

}  // namespace

TFO_C_API int64_t tfo_size_of_row_args() { return sizeof(RowArgs); }

// How many values the scratch memory of what reduces rows has: of the type that
// T is computed in.
TFO_C_API int64_t tfo_row_scratch(int64_t rows, int64_t classes) {
  return GpuStateValues(rows, classes);
}

TFO_C_API Error tfo_softmax(const Place* place, int32_t dtype,
                            const RowArgs* args, Pointer logits, Pointer output,
                            Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(WithScratch(device, scratch),
                          SoftmaxArgs<decltype(t)>{args->rows, args->classes,
                                                   args->log, logits, output});
  });
}
TFO_C_API Error tfo_softmax_grad(const Place* place, int32_t dtype,
                                 const RowArgs* args, Pointer d_output,
                                 Pointer output, Pointer d_logits,
                                 Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(
        WithScratch(device, scratch),
        SoftmaxGradArgs<decltype(t)>{args->rows, args->classes, args->log,
                                     d_output, output, d_logits});
  });
}

TFO_C_API Error tfo_entropy(const Place* place, int32_t dtype,
                            const RowArgs* args, Pointer logits,
                            Pointer entropy, Pointer largest, Pointer rest,
                            Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(
        WithScratch(device, scratch),
        EntropyArgs<decltype(t)>{
            args->rows, args->classes, logits, entropy, {largest, rest}});
  });
}
TFO_C_API Error tfo_entropy_grad(const Place* place, int32_t dtype,
                                 const RowArgs* args, Pointer logits,
                                 Pointer d_entropy, Pointer entropy,
                                 Pointer largest, Pointer rest,
                                 Pointer d_logits) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(device, EntropyGradArgs<decltype(t)>{args->rows,
                                                               args->classes,
                                                               d_entropy,
                                                               logits,
                                                               entropy,
                                                               {largest, rest},
                                                               d_logits});
  });
}

TFO_C_API Error tfo_label_loss(const Place* place, int32_t dtype,
                               const RowArgs* args, Pointer logits,
                               Pointer labels, Pointer loss, Pointer largest,
                               Pointer rest, Pointer scratch) {
  int64_t bad_row = args->rows;
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(
        WithScratch(device, scratch),
        LabelLossArgs<decltype(t)>{args->rows,
                                   args->classes,
                                   args->Options(),
                                   logits,
                                   LabelsOf(*args, labels),
                                   loss,
                                   {largest, rest},
                                   place->on_gpu ? nullptr : &bad_row});
  });
}
TFO_C_API Error tfo_label_loss_grad(const Place* place, int32_t dtype,
                                    const RowArgs* args, Pointer logits,
                                    Pointer labels, Pointer d_loss,
                                    Pointer largest, Pointer rest,
                                    Pointer d_logits) {
  int64_t bad_row = args->rows;
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(device, LabelLossGradArgs<decltype(t)>{
                                      args->rows,
                                      args->classes,
                                      args->Options(),
                                      d_loss,
                                      logits,
                                      LabelsOf(*args, labels),
                                      {largest, rest},
                                      d_logits,
                                      place->on_gpu ? nullptr : &bad_row});
  });
}

TFO_C_API Error tfo_cross_entropy(const Place* place, int32_t dtype,
                                  const RowArgs* args, Pointer logits,
                                  Pointer labels, Pointer loss, Pointer largest,
                                  Pointer rest, Pointer label_sum,
                                  Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(WithScratch(device, scratch),
                          CrossEntropyArgs<decltype(t)>{args->rows,
                                                        args->classes,
                                                        args->label_smoothing,
                                                        labels,
                                                        logits,
                                                        loss,
                                                        {largest, rest},
                                                        label_sum});
  });
}
TFO_C_API Error tfo_cross_entropy_grad(const Place* place, int32_t dtype,
                                       const RowArgs* args, Pointer logits,
                                       Pointer labels, Pointer d_loss,
                                       Pointer largest, Pointer rest,
                                       Pointer label_sum, Pointer d_logits,
                                       Pointer d_labels) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RunRowFunction(
        device, CrossEntropyGradArgs<decltype(t)>{args->rows,
                                                  args->classes,
                                                  args->label_smoothing,
                                                  d_loss,
                                                  labels,
                                                  logits,
                                                  {largest, rest},
                                                  label_sum,
                                                  d_logits,
                                                  d_labels});
  });
}

TFO_C_API Error tfo_gaussian_kl(const Place* place, int32_t dtype,
                                const RowArgs* args, Pointer q_mean,
                                Pointer q_log_variance, Pointer p_mean,
                                Pointer p_log_variance, Pointer divergence,
                                Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return OnBool(args->unit, [&](auto unit) {
      return RunRowFunction(
          WithScratch(device, scratch),
          GaussianKlArgs<decltype(t), unit.value>{
              args->rows, args->classes, q_mean, q_log_variance, p_mean,
              p_log_variance, divergence});
    });
  });
}
TFO_C_API Error tfo_gaussian_kl_grad(const Place* place, int32_t dtype,
                                     const RowArgs* args, Pointer q_mean,
                                     Pointer q_log_variance, Pointer p_mean,
                                     Pointer p_log_variance,
                                     Pointer d_divergence, Pointer d_q_mean,
                                     Pointer d_q_log_variance, Pointer d_p_mean,
                                     Pointer d_p_log_variance) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return OnBool(args->unit, [&](auto unit) {
      return RunRowFunction(
          device, GaussianKlGradArgs<decltype(t), unit.value>{
                      args->rows, args->classes, d_divergence, q_mean,
                      q_log_variance, p_mean, p_log_variance, d_q_mean,
                      d_q_log_variance, d_p_mean, d_p_log_variance});
    });
  });
}

}  // namespace tfo
