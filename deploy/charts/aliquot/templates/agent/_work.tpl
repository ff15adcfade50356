{{/*
What the agent's container does: its work, or, before Aliquot is taken away, the removal of its files.
*/}}

{{/* The host's paths are mounted where the host has them: CDI specs name them, and the runtime reads those on the host. */}}
{{- define "aliquot.agentWorks" -}}
{{- $agent := .Values.agent -}}
command: [aliquot-plugin]
args:
  - --kubelet-dir={{ $agent.kubeletDir }}
  - --state-dir={{ $agent.stateDir }}
  - --run-dir={{ $agent.runDir }}/host
  - --cdi-dir={{ $agent.cdiDir }}
  - --proc=/host/proc
  - --driver-root=/host/driver
  - --host-driver-root={{ $agent.driverRoot }}
  - --slices-per-card={{ $agent.slicesPerCard }}
  - --reserve={{ $agent.reserve }}
  - --enforcement={{ .Values.enforcement }}
  {{- with include "aliquot.resourceDomainArg" .Values }}
  {{- . | nindent 2 }}
  {{- end }}
  - --placement-wait={{ $agent.placementWaitSeconds }}
  - --metrics-port=9464
  - --tls-cert=/etc/aliquot/tls/tls.crt
  - --tls-key=/etc/aliquot/tls/tls.key
  {{- include "aliquot.metricsClients" . | nindent 2 }}
  - --accept-tokens
  {{- if not $agent.arbiter }}
  - --no-arbiter
  {{- end }}
  {{- if not $agent.forwarders }}
  - --no-forwarders
  {{- end }}
  {{- include "aliquot.commonArgs" (list . $agent) | nindent 2 }}
env:
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  {{- with include "aliquot.resourceDomainArg" .Values }}
  # For `aliquot doctor --node` in this container.
  - {name: ALIQUOT_RESOURCE_DOMAIN, value: {{ include "aliquot.resourceDomain" $.Values | quote }}}
  {{- end }}
  # NVIDIA's container runtime brings the cards' device nodes and libnvidia-ml into this container.
  - {name: NVIDIA_VISIBLE_DEVICES, value: all}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
  {{- with $agent.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: metrics, containerPort: 9464}
{{- include "aliquot.startupProbe" 9464 | nindent 0 }}
livenessProbe: {httpGet: {path: /healthz, port: metrics, scheme: HTTPS}, periodSeconds: 10, timeoutSeconds: 5}
readinessProbe: {httpGet: {path: /readyz, port: metrics, scheme: HTTPS}, periodSeconds: 5, timeoutSeconds: 5}
volumeMounts:
  - {name: state, mountPath: {{ $agent.stateDir | quote }}}
  - {name: run, mountPath: {{ $agent.runDir | quote }}}
  - {name: device-plugins, mountPath: {{ printf "%s/device-plugins" $agent.kubeletDir | quote }}}
  - {name: pod-resources, mountPath: {{ printf "%s/pod-resources" $agent.kubeletDir | quote }}, readOnly: true}
  # Usage pages are laid in volumes of pods, which are mounted while the agent runs.
  - {name: pods, mountPath: {{ printf "%s/pods" $agent.kubeletDir | quote }}, mountPropagation: HostToContainer}
  - {name: cdi, mountPath: {{ $agent.cdiDir | quote }}}
  - {name: proc, mountPath: /host/proc, readOnly: true}
  {{- range $index, $path := include "aliquot.driverPaths" . | fromJsonArray }}
  - {name: driver-{{ $index }}, mountPath: {{ clean (printf "/host/driver/%s" $path) | quote }}, readOnly: true}
  {{- end }}
  - {name: tls, mountPath: /etc/aliquot/tls, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- with $agent.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What of the driver's root is mounted: of the host's own only what the driver may be in, as a JSON list. */}}
{{- define "aliquot.driverPaths" -}}
{{ ternary .Values.agent.driverPaths (list "") (eq (clean .Values.agent.driverRoot) "/") | toJson }}
{{- end -}}

{{/* The parents of our directories are mounted, so that nothing of them remains. */}}
{{- define "aliquot.agentRemovesFiles" -}}
{{- $agent := .Values.agent -}}
command: [sh, -c]
args:
  - |
    {{- .Files.Get "files/remove-files.sh" | nindent 4 }}
    exec sleep infinity
  - remove-files
  - /host/state/{{ base $agent.stateDir }}
  - /host/run/{{ base $agent.runDir }}
  - /host/cdi
  - /host/device-plugins
  - /host/pods
# A pod of a DaemonSet may not end; that it is Ready says that it is done.
readinessProbe: {exec: {command: [sh, -c, '[ -z "$(ls -A "$0" 2>/dev/null)" ]', /host/state/{{ base $agent.stateDir }}]}, periodSeconds: 1}
volumeMounts:
  - {name: state-parent, mountPath: /host/state}
  - {name: run-parent, mountPath: /host/run}
  - {name: cdi, mountPath: /host/cdi}
  - {name: device-plugins, mountPath: /host/device-plugins}
  - {name: pods, mountPath: /host/pods, readOnly: true}
{{- end -}}
