// A C interface to the algorithm files, so that Python calls them through
// ctypes on a machine without TensorFlow. One function per algorithm, all
// alike: place, dtype, sizes, then pointers in the algorithm's order. It
// returns null, or what is wrong.
#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/row_parts.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

#define TFO_C_API extern "C" __attribute__((visibility("default")))

namespace tfo {
namespace {

// Where to run: on one thread of the processor, or on a stream of the GPU.
struct Place {
  int32_t on_gpu;
  void* stream;
};

// Calls run(device, T{}): the overload of the place, the type of the code.
template <typename T, typename Run>
Error OnPlace(const Place& place, const Run& run) {
  return place.on_gpu ? run(Gpu{place.stream}, T{}) : run(Cpu{}, T{});
}
template <typename Run>
Error Dispatch(const Place& place, int32_t dtype, const Run& run) {
  switch (dtype) {
    case 0:
      return OnPlace<float>(place, run);
    case 1:
      return OnPlace<double>(place, run);
    case 2:
      return OnPlace<Half>(place, run);
    case 3:
      return OnPlace<BFloat16>(place, run);
    default:
      return "no kernel for this dtype";
  }
}

// A void pointer that becomes the pointer a parameter asks for.
struct Pointer {
  void* address;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};

// The processor has one way to the gradient, a GPU two.
template <typename T>
Error AverageGrad(const Cpu& cpu, const RoiAverageArgs& args,
                  bool /*deterministic*/, const T* d_output,
                  const Coordinate<T>* boxes, const int32_t* box_indices,
                  T* const* d_features) {
  return RoiAverageGrad(cpu, args, d_output, boxes, box_indices, d_features);
}
template <typename T>
Error AverageGrad(const Gpu& gpu, const RoiAverageArgs& args,
                  bool deterministic, const T* d_output,
                  const Coordinate<T>* boxes, const int32_t* box_indices,
                  T* const* d_features) {
  return RoiAverageGrad(gpu, args, deterministic, d_output, boxes, box_indices,
                        d_features);
}

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
// Calls run(bool_constant).
template <typename Run>
Error OnBool(bool value, const Run& run) {
  return value ? run(std::true_type()) : run(std::false_type());
}
// Calls run(labels).
template <typename Run>
Error OnLabels(const RowArgs& args, const Pointer& labels, const Run& run) {
  if (args.wide_labels) return run(static_cast<const int64_t*>(labels.address));
  return run(static_cast<const int32_t*>(labels.address));
}

}  // namespace

// bindings.py declares the structs of sizes again, and compares with these.
TFO_C_API int64_t tfo_size_of_zero_out_args() { return sizeof(ZeroOutArgs); }
TFO_C_API int64_t tfo_size_of_roi_args() { return sizeof(RoiArgs); }
TFO_C_API int64_t tfo_size_of_roi_average_args() {
  return sizeof(RoiAverageArgs);
}

TFO_C_API int64_t tfo_size_of_row_args() { return sizeof(RowArgs); }

TFO_C_API const char* tfo_cpu_level() { return CpuLevelName(ActiveCpuLevel()); }

TFO_C_API Error tfo_zero_out(const Place* place, int32_t /*any*/,
                             const ZeroOutArgs* args, Pointer input,
                             Pointer output) {
  return OnPlace<float>(*place, [&](auto device, auto) {
    return ZeroOut(device, *args, input, output);
  });
}

TFO_C_API Error tfo_roi_pool(const Place* place, int32_t dtype,
                             const RoiArgs* args, Pointer features,
                             Pointer boxes, Pointer box_indices, Pointer output,
                             Pointer argmax) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPool<decltype(t)>(device, *args, features, boxes, box_indices,
                                output, argmax);
  });
}

TFO_C_API Error tfo_roi_pool_grad(const Place* place, int32_t dtype,
                                  const RoiArgs* args, Pointer d_output,
                                  Pointer argmax, Pointer boxes,
                                  Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGrad<decltype(t)>(device, *args, d_output, argmax, boxes,
                                    box_indices, d_features);
  });
}

TFO_C_API Error tfo_roi_pool_grad_grad(const Place* place, int32_t dtype,
                                       const RoiArgs* args, Pointer dd_features,
                                       Pointer argmax, Pointer boxes,
                                       Pointer box_indices, Pointer dd_output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGradGrad<decltype(t)>(device, *args, dd_features, argmax,
                                        boxes, box_indices, dd_output);
  });
}

// `features` and `d_features` are arrays of pointers, one per level.
TFO_C_API Error tfo_roi_average(const Place* place, int32_t dtype,
                                const RoiAverageArgs* args, Pointer features,
                                Pointer boxes, Pointer box_indices,
                                Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverage<decltype(t)>(device, *args, features, boxes, box_indices,
                                   output);
  });
}

// The gradient that is the same from run to run, and the one that need not be.
TFO_C_API Error tfo_roi_average_grad(const Place* place, int32_t dtype,
                                     const RoiAverageArgs* args,
                                     Pointer d_output, Pointer boxes,
                                     Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return AverageGrad<decltype(t)>(device, *args, true, d_output, boxes,
                                    box_indices, d_features);
  });
}
TFO_C_API Error tfo_roi_average_fast_grad(const Place* place, int32_t dtype,
                                          const RoiAverageArgs* args,
                                          Pointer d_output, Pointer boxes,
                                          Pointer box_indices,
                                          Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return AverageGrad<decltype(t)>(device, *args, false, d_output, boxes,
                                    box_indices, d_features);
  });
}

TFO_C_API Error tfo_roi_average_boxes_grad(const Place* place, int32_t dtype,
                                           const RoiAverageArgs* args,
                                           Pointer d_output, Pointer features,
                                           Pointer boxes, Pointer box_indices,
                                           Pointer d_boxes) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverageBoxesGrad<decltype(t)>(device, *args, d_output, features,
                                            boxes, box_indices, d_boxes);
  });
}

// Of the sizes, `roi` and `sampling` are used.
TFO_C_API Error tfo_roi_align_max(const Place* place, int32_t dtype,
                                  const RoiAverageArgs* args, Pointer features,
                                  Pointer values, Pointer boxes,
                                  Pointer box_indices, Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMax<decltype(t)>(device, args->roi, args->sampling, features,
                                    values, boxes, box_indices, output);
  });
}

TFO_C_API Error tfo_roi_align_max_grad(const Place* place, int32_t dtype,
                                       const RoiAverageArgs* args,
                                       Pointer d_output, Pointer features,
                                       Pointer boxes, Pointer box_indices,
                                       Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMaxGrad<decltype(t)>(device, args->roi, args->sampling,
                                        d_output, features, boxes, box_indices,
                                        d_features);
  });
}

// How many values the scratch memory of what reduces rows has: of the type that
// T is computed in.
TFO_C_API int64_t tfo_row_scratch(int64_t rows, int64_t classes) {
  return RowScratch(rows, classes);
}

TFO_C_API Error tfo_softmax(const Place* place, int32_t dtype,
                            const RowArgs* args, Pointer logits, Pointer output,
                            Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return OnBool(args->log, [&](auto log) {
      return Softmax(
          device, SoftmaxArgs<decltype(t), log.value>{args->rows, args->classes,
                                                      logits, output, scratch});
    });
  });
}
TFO_C_API Error tfo_softmax_grad(const Place* place, int32_t dtype,
                                 const RowArgs* args, Pointer d_output,
                                 Pointer output, Pointer d_logits,
                                 Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return OnBool(args->log, [&](auto log) {
      return SoftmaxGrad(device, SoftmaxGradArgs<decltype(t), log.value>{
                                     args->rows, args->classes, d_output,
                                     output, d_logits, scratch});
    });
  });
}

TFO_C_API Error tfo_entropy(const Place* place, int32_t dtype,
                            const RowArgs* args, Pointer logits,
                            Pointer entropy, Pointer largest, Pointer rest,
                            Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return Entropy(device, EntropyArgs<decltype(t)>{args->rows,
                                                    args->classes,
                                                    logits,
                                                    entropy,
                                                    {largest, rest},
                                                    scratch});
  });
}
TFO_C_API Error tfo_entropy_grad(const Place* place, int32_t dtype,
                                 const RowArgs* args, Pointer logits,
                                 Pointer d_entropy, Pointer entropy,
                                 Pointer largest, Pointer rest,
                                 Pointer d_logits) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return EntropyGrad(device, EntropyGradArgs<decltype(t)>{args->rows,
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
    return OnLabels(*args, labels, [&](auto* of_rows) {
      using Label = std::remove_cv_t<std::remove_pointer_t<decltype(of_rows)>>;
      return LabelLoss(device, LabelLossArgs<decltype(t), Label>{
                                   args->rows,
                                   args->classes,
                                   args->Options(),
                                   logits,
                                   of_rows,
                                   loss,
                                   {largest, rest},
                                   place->on_gpu ? nullptr : &bad_row,
                                   scratch});
    });
  });
}
TFO_C_API Error tfo_label_loss_grad(const Place* place, int32_t dtype,
                                    const RowArgs* args, Pointer logits,
                                    Pointer labels, Pointer d_loss,
                                    Pointer largest, Pointer rest,
                                    Pointer d_logits) {
  int64_t bad_row = args->rows;
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return OnLabels(*args, labels, [&](auto* of_rows) {
      using Label = std::remove_cv_t<std::remove_pointer_t<decltype(of_rows)>>;
      return LabelLossGrad(device, LabelLossGradArgs<decltype(t), Label>{
                                       args->rows,
                                       args->classes,
                                       args->Options(),
                                       d_loss,
                                       logits,
                                       of_rows,
                                       {largest, rest},
                                       d_logits,
                                       place->on_gpu ? nullptr : &bad_row});
    });
  });
}

TFO_C_API Error tfo_cross_entropy(const Place* place, int32_t dtype,
                                  const RowArgs* args, Pointer logits,
                                  Pointer labels, Pointer loss, Pointer largest,
                                  Pointer rest, Pointer label_sum,
                                  Pointer scratch) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return CrossEntropy(device,
                        CrossEntropyArgs<decltype(t)>{args->rows,
                                                      args->classes,
                                                      args->label_smoothing,
                                                      labels,
                                                      logits,
                                                      loss,
                                                      {largest, rest},
                                                      label_sum,
                                                      scratch});
  });
}
TFO_C_API Error tfo_cross_entropy_grad(const Place* place, int32_t dtype,
                                       const RowArgs* args, Pointer logits,
                                       Pointer labels, Pointer d_loss,
                                       Pointer largest, Pointer rest,
                                       Pointer label_sum, Pointer d_logits,
                                       Pointer d_labels) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return CrossEntropyGrad(
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
      return GaussianKl(
          device, GaussianKlArgs<decltype(t), unit.value>{
                      args->rows, args->classes, q_mean, q_log_variance, p_mean,
                      p_log_variance, divergence, scratch});
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
      return GaussianKlGrad(
          device, GaussianKlGradArgs<decltype(t), unit.value>{
                      args->rows, args->classes, d_divergence, q_mean,
                      q_log_variance, p_mean, p_log_variance, d_q_mean,
                      d_q_log_variance, d_p_mean, d_p_log_variance});
    });
  });
}

}  // namespace tfo
