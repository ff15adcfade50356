{{/* Parts that the admission policies share. A list becomes CEL as JSON, which CEL reads as its own. */}}

{{/* Annotations that carry a grant or a status: the scheduler writes them, and everybody else believes them. */}}
{{- define "aliquot.policies.grants" -}}
["aliquot.dev/placement", "aliquot.dev/resize-status", "aliquot.dev/retry", "aliquot.dev/reclaim"]
{{- end }}

{{/* The accounts that write them. */}}
{{- define "aliquot.policies.schedulers" -}}
{{- concat (list (include "aliquot.schedulerUser" .)) .Values.policies.placingAccounts | toJson }}
{{- end }}

{{/* A match condition: what the admin's own accounts do is nobody's business here. Nothing where there are none. */}}
{{- define "aliquot.policies.notExempt" -}}
{{- with .Values.policies.exemptAccounts -}}
- name: by-no-exempt-account
  expression: '!(request.userInfo.username in {{ toJson . }})'
{{- end }}
{{- end }}

{{/*
Whether a container, `c`, holds a slice or a MIG instance (all), or a slice (slices): an amount that is not 0 in its
limits, which the API server demands of extended resources. A dialect's container holds something as soon as it names one
of the dialect's resources, unless it counts 0 cards; where only some namespaces speak it, once the webhook has written our
resources beside them.
*/}}
{{- define "aliquot.policies.holds" -}}
has(c.resources) && has(c.resources.limits) && (c.resources.limits.exists(k, {{ .ours }} && c.resources.limits[k] != '0')
{{- if and (has "hami" .values.dialects) (not .values.dialectNamespaces) }}
|| (c.resources.limits.exists(k, k in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores'])
&& !('nvidia.com/gpu' in c.resources.limits && c.resources.limits['nvidia.com/gpu'] == '0'))
{{- end -}}
)
{{- end }}

{{- define "aliquot.policies.holdsSlice" -}}
{{- include "aliquot.policies.holds" (dict "ours" (include "aliquot.isSliceResource" .Values) "values" .Values) }}
{{- end }}

{{/* A match condition: the pod has a container that holds a slice or a MIG instance. */}}
{{- define "aliquot.policies.holdsAnything" -}}
{{- $holds := include "aliquot.policies.holds" (dict "ours" (include "aliquot.inResourceDomain" .Values) "values" .Values) -}}
- name: holds-a-slice-or-an-instance
  expression: >-
    object.spec.containers.exists(c, {{ $holds | nindent 4 | trim }})
    || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $holds | nindent 4 | trim }}))
{{- end }}

{{/* Names of schedulers that hand out cards. */}}
{{- define "aliquot.policies.schedulerNames" -}}
{{- concat (list "aliquot-scheduler") .Values.scheduler.extender.volcano .Values.policies.schedulerNames | toJson }}
{{- end }}

{{/* Directories without superfluous slashes and dots, and below /run what is said to be below /var/run. */}}
{{- define "aliquot.policies.directories" -}}
{{- $clean := list }}
{{- range . }}
{{- $clean = append $clean (regexReplaceAll "^/var(/run(/.*)?)$" (clean .) "${1}") }}
{{- end }}
{{- toJson (uniq $clean) }}
{{- end }}

{{/* Directories of a node from which cards, tenants' pages or other containers can be reached. */}}
{{- define "aliquot.policies.hostPaths" -}}
{{- $runtimes := list "/etc/cdi" "/run/cdi" "/run/containerd" "/run/crio" "/run/docker" "/run/docker.sock" "/run/nvidia" }}
{{- $stores := list "/var/lib/containerd" "/var/lib/containers" "/var/lib/crio" "/var/lib/docker" "/var/lib/rancher" "/run/k3s" }}
{{- $programs := list "/bin" "/boot" "/etc" "/lib" "/lib64" "/root" "/sbin" "/usr" }}
{{- $ours := list .Values.agent.stateDir .Values.agent.runDir .Values.agent.cdiDir .Values.agent.kubeletDir }}
{{- include "aliquot.policies.directories" (concat (list "/dev" "/proc" "/sys") $runtimes $stores $programs $ours .Values.policies.hostPaths) }}
{{- end }}

{{/* Capabilities that pods with slices may add, without CAP_: what reaches nothing outside of the container. */}}
{{- define "aliquot.policies.capabilities" -}}
{{- $harmless := list "AUDIT_WRITE" "CHOWN" "DAC_OVERRIDE" "FOWNER" "FSETID" "IPC_LOCK" "KILL" "NET_BIND_SERVICE" "NET_RAW" "SETFCAP" "SETGID" "SETPCAP" "SETUID" "SYS_CHROOT" }}
{{- range .Values.policies.allowedCapabilities }}
{{- $harmless = append $harmless (. | upper | trimPrefix "CAP_") }}
{{- end }}
{{- $harmless | uniq | toJson }}
{{- end }}

{{/* The binding of a policy of the same name: everywhere, without a namespace or a label that opts out. */}}
{{- define "aliquot.policies.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "aliquot.labels" (list .root "policies") | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: {{ .root.Values.policies.validationActions | toJson }}
{{- end }}

{{/* Variables: the node that the token of a node agent names, and that agent in words. */}}
{{- define "aliquot.policies.agent" -}}
{{- $claim := "authentication.kubernetes.io/node-name" -}}
- name: node
  expression: >-
    has(request.userInfo.extra) && '{{ $claim }}' in request.userInfo.extra
    ? request.userInfo.extra['{{ $claim }}'].join(',') : ''
- name: whose
  expression: "variables.node == '' ? 'a node agent whose token names no node' : 'the node agent of ' + variables.node"
{{- end }}
