"""In-context learning of linear regression as preconditioned gradient descent, with exact losses."""

from attnopt.in_context.gdpp import gdpp_loss, gdpp_optimum, gdpp_residuals
from attnopt.in_context.landscape import transverse_hessians
from attnopt.in_context.layers import layers_loss
from attnopt.in_context.one_layer import attention_loss, one_layer_loss, one_layer_optimum
from attnopt.in_context.prompts import sample_grams, sample_prompts
from attnopt.in_context.second_valley import second_valley, valley_loss, valley_parameters
from attnopt.in_context.steps import marchenko_pastur_steps, optimal_step_sizes, residual_polynomial, step_loss
from attnopt.in_context.three_layers import three_layer_certificate, three_layer_loss
from attnopt.in_context.transformer import in_context_loss, linear_transformer, prompt_losses
from attnopt.in_context.two_layers import (
    two_layer_bound,
    two_layer_certificate,
    two_layer_certificate_for_all,
    two_layer_coefficients,
)
from attnopt.in_context.wishart import (
    gram_quadrature,
    spectral_moments,
    wishart_quadrature,
    wishart_recurrence,
    wishart_trace_moment,
)

__all__ = [
    "attention_loss",
    "gdpp_loss",
    "gdpp_optimum",
    "gdpp_residuals",
    "gram_quadrature",
    "in_context_loss",
    "layers_loss",
    "linear_transformer",
    "marchenko_pastur_steps",
    "one_layer_loss",
    "one_layer_optimum",
    "optimal_step_sizes",
    "prompt_losses",
    "residual_polynomial",
    "sample_grams",
    "sample_prompts",
    "second_valley",
    "spectral_moments",
    "step_loss",
    "three_layer_certificate",
    "three_layer_loss",
    "transverse_hessians",
    "two_layer_bound",
    "two_layer_certificate",
    "two_layer_certificate_for_all",
    "two_layer_coefficients",
    "valley_loss",
    "valley_parameters",
    "wishart_quadrature",
    "wishart_recurrence",
    "wishart_trace_moment",
]
