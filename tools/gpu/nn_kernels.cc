// Softmax, entropy, cross entropies, the KL divergence of Gaussians.
#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"
#include "tensorflow_ops/nn/cc/kernels/softmax/softmax.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

struct Shape {
  int64_t rows, classes;
  explicit Shape(const KernelCall& call)
      : rows(call.Int("rows")), classes(call.Int("classes")) {}
};

template <typename Args>
Error Run(const KernelCall& call, const Args& args) {
  const int64_t values =
      Args::kReduces ? GpuStateValues(args.rows, args.classes) : 0;
  return RunRowFunction(call.Gpu(values * sizeof(typename Args::Value)), args);
}

LabelLossOptions Options(const KernelCall& call) {
  LabelLossOptions options;
  options.ignores = !call.Text("ignore_index").empty();
  options.ignore_index = call.Int("ignore_index");
  options.label_smoothing = call.Number("label_smoothing");
  options.z_loss = call.Number("z_loss");
  options.log_prob = call.Int("log_prob") != 0;
  return options;
}

Labels LabelsOf(const KernelCall& call, int i) {
  if (call.Text("labels") == "int64") {
    return Labels(static_cast<const int64_t*>(call[i].address));
  }
  return Labels(static_cast<const int32_t*>(call[i].address));
}

}  // namespace

// logits, output
TFO_GPU_KERNEL(softmax, call) {
  const Shape shape(call);
  const bool log = call.Int("log") != 0;
  return call.WithType([&](auto t) {
    return Run(call, SoftmaxArgs<decltype(t)>{shape.rows, shape.classes, log,
                                              call[0], call[1]});
  });
}

// d_output, output, d_logits
TFO_GPU_KERNEL(softmax_grad, call) {
  const Shape shape(call);
  const bool log = call.Int("log") != 0;
  return call.WithType([&](auto t) {
    return Run(call,
               SoftmaxGradArgs<decltype(t)>{shape.rows, shape.classes, log,
                                            call[0], call[1], call[2]});
  });
}

// logits, entropy, largest, rest
TFO_GPU_KERNEL(entropy, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(
        call,
        EntropyArgs<decltype(t)>{
            shape.rows, shape.classes, call[0], call[1], {call[2], call[3]}});
  });
}

// d_entropy, logits, entropy, largest, rest, d_logits
TFO_GPU_KERNEL(entropy_grad, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, EntropyGradArgs<decltype(t)>{shape.rows,
                                                  shape.classes,
                                                  call[0],
                                                  call[1],
                                                  call[2],
                                                  {call[3], call[4]},
                                                  call[5]});
  });
}

// logits, labels, loss, largest, rest
TFO_GPU_KERNEL(label_loss, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, LabelLossArgs<decltype(t)>{shape.rows,
                                                shape.classes,
                                                Options(call),
                                                call[0],
                                                LabelsOf(call, 1),
                                                call[2],
                                                {call[3], call[4]},
                                                nullptr});
  });
}

// d_loss, logits, labels, largest, rest, d_logits
TFO_GPU_KERNEL(label_loss_grad, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, LabelLossGradArgs<decltype(t)>{shape.rows,
                                                    shape.classes,
                                                    Options(call),
                                                    call[0],
                                                    call[1],
                                                    LabelsOf(call, 2),
                                                    {call[3], call[4]},
                                                    call[5],
                                                    nullptr});
  });
}

// labels, logits, loss, largest, rest, label_sum
TFO_GPU_KERNEL(cross_entropy, call) {
  const Shape shape(call);
  const double smoothing = call.Number("label_smoothing");
  return call.WithType([&](auto t) {
    return Run(call, CrossEntropyArgs<decltype(t)>{shape.rows,
                                                   shape.classes,
                                                   smoothing,
                                                   call[0],
                                                   call[1],
                                                   call[2],
                                                   {call[3], call[4]},
                                                   call[5]});
  });
}

// d_loss, labels, logits, largest, rest, label_sum, d_logits, d_labels
TFO_GPU_KERNEL(cross_entropy_grad, call) {
  const Shape shape(call);
  const double smoothing = call.Number("label_smoothing");
  return call.WithType([&](auto t) {
    return Run(call, CrossEntropyGradArgs<decltype(t)>{shape.rows,
                                                       shape.classes,
                                                       smoothing,
                                                       call[0],
                                                       call[1],
                                                       call[2],
                                                       {call[3], call[4]},
                                                       call[5],
                                                       call[6],
                                                       call[7]});
  });
}

// q_mean, q_log_variance, p_mean, p_log_variance, divergence
TFO_GPU_KERNEL(gaussian_kl, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, GaussianKlArgs<decltype(t), false>{
                         shape.rows, shape.classes, call[0], call[1], call[2],
                         call[3], call[4]});
  });
}

// q_mean, q_log_variance, divergence
TFO_GPU_KERNEL(unit_gaussian_kl, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, GaussianKlArgs<decltype(t), true>{
                         shape.rows, shape.classes, call[0], call[1], nullptr,
                         nullptr, call[2]});
  });
}

// d_divergence, q_mean, q_log_variance, p_mean, p_log_variance, then their
// gradients
TFO_GPU_KERNEL(gaussian_kl_grad, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, GaussianKlGradArgs<decltype(t), false>{
                         shape.rows, shape.classes, call[0], call[1], call[2],
                         call[3], call[4], call[5], call[6], call[7], call[8]});
  });
}

// d_divergence, q_mean, q_log_variance, then their gradients
TFO_GPU_KERNEL(unit_gaussian_kl_grad, call) {
  const Shape shape(call);
  return call.WithType([&](auto t) {
    return Run(call, GaussianKlGradArgs<decltype(t), true>{
                         shape.rows, shape.classes, call[0], call[1], call[2],
                         nullptr, nullptr, call[3], call[4], nullptr, nullptr});
  });
}

}  // namespace tfo::gpu
