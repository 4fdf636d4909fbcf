// The agreement between XLA's compiler (xla_compile.cc) and the running program
// (xla_run.cc). Under jit_compile=True an op becomes a custom call, and the
// call runs the op's own OpKernel on XLA's buffers.
#ifndef TENSORFLOW_OPS_CORE_CC_XLA_XLA_CALL_H_
#define TENSORFLOW_OPS_CORE_CC_XLA_XLA_CALL_H_

namespace tfo {

inline constexpr char kXlaCallTarget[] = "tensorflow_ops.kernel";

// The call's attribute that contains the NodeDef, serialized, in base64.
inline constexpr char kXlaNodeAttr[] = "node";

// The attribute of the NodeDef for each input that is a constant of the
// program: this prefix and the input's number. Other inputs are operands.
inline constexpr char kXlaConstantPrefix[] = "_tfo_constant_";

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_XLA_XLA_CALL_H_
